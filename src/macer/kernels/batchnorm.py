"""Batch normalisation with the shortcut and ReLU after it, for training on a GPU.

    m = mean(x),  v = mean((x − m)²),  x̂ = (x − m) / √(v + ε)             [Ioffe+15, Alg. 1]
    y = ReLU(wx̂ + b + shortcut)

and backwards, with dz = dy where y > 0 and 0 elsewhere, n values per channel:

    db = Σ dz,  dw = Σ dz·x̂,  dx = w / √(v + ε) · (dz − db/n − x̂·dw/n),  dshortcut = dz

Such layers are bound by memory traffic. Forwards x is read twice, for the sums and for y, and y is
written once; backwards x and dy are read twice and dx is written once. Each direction is three
kernels: sums over the rows of a tile, a row being a pixel; what follows from them, per channel;
the result. Tensors are channels last; sums are float32.

A network is attacked in eval mode. There m and v are the running averages, which are constants:
no sums are needed, and each direction is one kernel. w and b get no gradient.

    dx = w / √(v + ε) · dz,  dshortcut = dz

[Ioffe+15]  Batch Normalization. ICML 2015.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

TILE = 4096  # values that a program handles at once
PROGRAMS = 512  # share a sum over the rows; their partial sums are added in a fixed order


@triton.jit
def _rows_and_columns(start, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The rows from start on, and this program's columns, which are channels."""
    rows = start + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    return rows, columns


@triton.jit
def _store_sums(partial, first, second, channels, COLUMNS: tl.constexpr):
    """Store this program's sums over its rows beside those of the other programs."""
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    place = partial + tl.program_id(0) * 2 * channels + c
    tl.store(place, tl.sum(first, 0))
    tl.store(place + channels, tl.sum(second, 0))


@triton.jit
def _statistics_kernel(
    x, shift, partial, rows, channels, steps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sums of x − shift and of its square, over this program's rows.

    The shift, a guess of the mean, keeps the difference of two large sums from losing digits.
    """
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    squares = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(steps):
        start = (tl.program_id(0) * steps + step) * ROWS
        r, c = _rows_and_columns(start, ROWS, COLUMNS)
        guess = tl.load(shift + c)[None, :]
        inside = (r < rows)[:, None]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - guess
        value = tl.where(inside, value, 0.0)
        total += value
        squares += value * value
    _store_sums(partial, total, squares, channels, COLUMNS)


@triton.jit
def _sums(partial, c, channels, programs, PROGRAMS: tl.constexpr):
    """The two sums of channels c over all programs."""
    p = tl.arange(0, PROGRAMS)[:, None]
    at = partial + p * 2 * channels + c[None, :]
    first = tl.load(at, mask=p < programs, other=0.0)
    second = tl.load(at + channels, mask=p < programs, other=0.0)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def _moments_kernel(
    partial, running_mean, running_var, mean, scale, count, momentum, eps, channels, programs,
    PROGRAMS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """m, 1 / √(v + ε), and the running averages of m and v."""
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total, squares = _sums(partial, c, channels, programs, PROGRAMS)
    old_mean = tl.load(running_mean + c)
    offset = total / count
    variance = squares / count - offset * offset
    variance = tl.maximum(variance, 0.0, propagate_nan=tl.PropagateNan.ALL)
    m = old_mean + offset
    tl.store(mean + c, m)
    tl.store(scale + c, 1 / tl.sqrt(variance + eps))
    tl.store(running_mean + c, old_mean + momentum * (m - old_mean))
    old_var = tl.load(running_var + c)
    unbiased = variance * (count / (count - 1))
    tl.store(running_var + c, old_var + momentum * (unbiased - old_var))


@triton.jit
def _apply_kernel(
    x, shortcut, mean, scale, weight, bias, y, rows, channels,
    SHORTCUT: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """y."""
    r, c = _rows_and_columns(tl.program_id(0) * ROWS, ROWS, COLUMNS)
    inside = (r < rows)[:, None]
    at = r.to(tl.int64)[:, None] * channels + c[None, :]
    slope = tl.load(scale + c) * tl.load(weight + c)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + c)[None, :]
    value = value * slope[None, :] + tl.load(bias + c)[None, :]
    if SHORTCUT:
        value += tl.load(shortcut + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _passed(
    x, y, dy, mean, scale, weight, bias, at, c, inside,
    SHORTCUT: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """x̂ and dz. Without a shortcut y has the sign of wx̂ + b, so y need not be read."""
    normal = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + c)[None, :]
    dz = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    if RELU and SHORTCUT:
        dz = tl.where(tl.load(y + at, mask=inside, other=0.0).to(tl.float32) > 0, dz, 0.0)
    elif RELU:
        slope = tl.load(scale + c) * tl.load(weight + c)
        dz = tl.where(normal * slope[None, :] + tl.load(bias + c)[None, :] > 0, dz, 0.0)
    return normal * tl.load(scale + c)[None, :], dz


@triton.jit
def _gradient_sums_kernel(
    x, y, dy, mean, scale, weight, bias, partial, rows, channels, steps,
    SHORTCUT: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Σ dz and Σ dz·x̂ over this program's rows."""
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    products = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(steps):
        start = (tl.program_id(0) * steps + step) * ROWS
        r, c = _rows_and_columns(start, ROWS, COLUMNS)
        inside = (r < rows)[:, None]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        normal, dz = _passed(
            x, y, dy, mean, scale, weight, bias, at, c, inside, SHORTCUT, RELU
        )  # fmt: skip
        total += dz  # 0 outside, since dy is
        products += dz * normal
    _store_sums(partial, total, products, channels, COLUMNS)


@triton.jit
def _gradient_moments_kernel(
    partial, dbias, dweight, channels, programs, PROGRAMS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """db and dw."""
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total, products = _sums(partial, c, channels, programs, PROGRAMS)
    tl.store(dbias + c, total)
    tl.store(dweight + c, products)


@triton.jit
def _gradient_kernel(
    x, y, dy, mean, scale, weight, bias, dbias, dweight, dx, dshortcut, rows, channels, count,
    SHORTCUT: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx and dshortcut."""
    r, c = _rows_and_columns(tl.program_id(0) * ROWS, ROWS, COLUMNS)
    inside = (r < rows)[:, None]
    at = r.to(tl.int64)[:, None] * channels + c[None, :]
    normal, dz = _passed(x, y, dy, mean, scale, weight, bias, at, c, inside, SHORTCUT, RELU)
    if SHORTCUT:
        tl.store(dshortcut + at, dz.to(dshortcut.dtype.element_ty), mask=inside)
    slope = tl.load(scale + c) * tl.load(weight + c)
    rest = tl.load(dbias + c)[None, :] + normal * tl.load(dweight + c)[None, :]
    value = slope[None, :] * (dz - rest / count)
    tl.store(dx + at, value.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def _fixed_gradient_kernel(
    y, dy, scale, weight, dx, dshortcut, rows, channels,
    SHORTCUT: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx and dshortcut in eval mode."""
    r, c = _rows_and_columns(tl.program_id(0) * ROWS, ROWS, COLUMNS)
    inside = (r < rows)[:, None]
    at = r.to(tl.int64)[:, None] * channels + c[None, :]
    dz = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        dz = tl.where(tl.load(y + at, mask=inside, other=0.0).to(tl.float32) > 0, dz, 0.0)
    if SHORTCUT:
        tl.store(dshortcut + at, dz.to(dshortcut.dtype.element_ty), mask=inside)
    slope = tl.load(scale + c) * tl.load(weight + c)
    tl.store(dx + at, (slope[None, :] * dz).to(dx.dtype.element_ty), mask=inside)


class _Shape:
    """How a tensor of channels-last images is cut into tiles."""

    def __init__(self, x: Tensor) -> None:
        self.channels = x.shape[1]
        self.rows = x.numel() // self.channels
        self.columns = min(64, self.channels & -self.channels)  # a power of 2 that divides it
        self.rows_per_tile = TILE // self.columns
        self.across = self.channels // self.columns
        tiles = triton.cdiv(self.rows, self.rows_per_tile)
        self.steps = triton.cdiv(tiles, max(1, PROGRAMS // self.across))
        self.programs = triton.cdiv(tiles, self.steps)
        self.constants = {"ROWS": self.rows_per_tile, "COLUMNS": self.columns}

    @property
    def one_per_tile(self) -> tuple[int, int]:
        """A grid with a program for each tile."""
        return triton.cdiv(self.rows, self.rows_per_tile), self.across

    @property
    def several_tiles(self) -> tuple[int, int]:
        """A grid with a program for several tiles, which it adds up."""
        return self.programs, self.across

    def partial(self, x: Tensor) -> Tensor:
        """Memory for the programs' sums."""
        return x.new_empty((self.programs, 2, self.channels), dtype=torch.float32)


def _channels_last(x: Tensor, shortcut: Tensor | None) -> tuple[Tensor, Tensor | None]:
    x = x.contiguous(memory_format=torch.channels_last)
    if shortcut is not None:
        shortcut = shortcut.to(x.dtype).contiguous(memory_format=torch.channels_last)
    return x, shortcut


class NormReLU(torch.autograd.Function):
    """ReLU(batch-norm(x) + shortcut) in training; the running averages are updated in place."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        shortcut: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        norm: nn.BatchNorm2d,
        relu: bool,
    ) -> Tensor:
        """Arguments: images channels last; weight and bias are the norm's."""
        assert norm.running_mean is not None and norm.running_var is not None
        x, shortcut = _channels_last(x, shortcut)
        shape, y = _Shape(x), torch.empty_like(x)
        partial = shape.partial(x)
        mean, scale = (torch.empty_like(weight) for _ in range(2))
        _statistics_kernel[shape.several_tiles](
            x,
            norm.running_mean,
            partial,
            shape.rows,
            shape.channels,
            shape.steps,
            **shape.constants,
        )
        columns = min(16, shape.columns)
        _moments_kernel[(shape.channels // columns,)](
            partial, norm.running_mean, norm.running_var, mean, scale, float(shape.rows),
            norm.momentum, norm.eps, shape.channels, shape.programs,
            PROGRAMS=triton.next_power_of_2(shape.programs), COLUMNS=columns,
        )  # fmt: skip
        options = {"SHORTCUT": shortcut is not None, "RELU": relu}
        _apply_kernel[shape.one_per_tile](
            x, x if shortcut is None else shortcut, mean, scale, weight, bias, y,
            shape.rows, shape.channels, **options, **shape.constants,
        )  # fmt: skip
        ctx.save_for_backward(x, y if shortcut is not None else x, mean, scale, weight, bias)
        ctx.shape, ctx.options = shape, options
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        """Gradients in the order of forward's arguments."""
        x, y, mean, scale, weight, bias = ctx.saved_tensors
        dy = grad_outputs[0].contiguous(memory_format=torch.channels_last)
        shape, options, partial = ctx.shape, ctx.options, ctx.shape.partial(x)
        _gradient_sums_kernel[shape.several_tiles](
            x, y, dy, mean, scale, weight, bias, partial,
            shape.rows, shape.channels, shape.steps, **options, **shape.constants,
        )  # fmt: skip
        dbias, dweight = torch.empty_like(bias), torch.empty_like(weight)
        columns = min(16, shape.columns)
        _gradient_moments_kernel[(shape.channels // columns,)](
            partial, dbias, dweight, shape.channels, shape.programs,
            PROGRAMS=triton.next_power_of_2(shape.programs), COLUMNS=columns,
        )  # fmt: skip
        dx = torch.empty_like(x)
        dshortcut = torch.empty_like(x) if options["SHORTCUT"] else dx
        _gradient_kernel[shape.one_per_tile](
            x, y, dy, mean, scale, weight, bias, dbias, dweight, dx, dshortcut,
            shape.rows, shape.channels, float(shape.rows), **options, **shape.constants,
        )  # fmt: skip
        return dx, dshortcut if options["SHORTCUT"] else None, dweight, dbias, None, None


class FixedNormReLU(torch.autograd.Function):
    """ReLU(batch-norm(x) + shortcut) in eval mode; only activations get gradients."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shortcut: Tensor | None, norm: nn.BatchNorm2d, relu: bool
    ) -> Tensor:
        """Arguments: images channels last; a norm whose weight and bias want no gradient."""
        assert norm.running_mean is not None and norm.running_var is not None
        x, shortcut = _channels_last(x, shortcut)
        shape, y = _Shape(x), torch.empty_like(x)
        scale = (norm.running_var + norm.eps).rsqrt()
        options = {"SHORTCUT": shortcut is not None, "RELU": relu}
        _apply_kernel[shape.one_per_tile](
            x, x if shortcut is None else shortcut, norm.running_mean, scale, norm.weight,
            norm.bias, y, shape.rows, shape.channels, **options, **shape.constants,
        )  # fmt: skip
        ctx.save_for_backward(y, scale, norm.weight)
        ctx.shape, ctx.options = shape, options
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        """Gradients in the order of forward's arguments."""
        y, scale, weight = ctx.saved_tensors
        dy = grad_outputs[0].contiguous(memory_format=torch.channels_last)
        shape, options, dx = ctx.shape, ctx.options, torch.empty_like(y)
        dshortcut = torch.empty_like(y) if options["SHORTCUT"] else dx
        _fixed_gradient_kernel[shape.one_per_tile](
            y, dy, scale, weight, dx, dshortcut, shape.rows, shape.channels,
            **options, **shape.constants,
        )  # fmt: skip
        return dx, dshortcut if options["SHORTCUT"] else None, None, None
