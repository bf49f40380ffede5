import math
from functools import partial

import mpmath
import numpy as np
import pytest
import torch
from scipy.stats import chisquare, norm
from torch import nn

from macer.certification.fixed_radius import certify_at
from macer.certification.largest_radius import (
    Kind,
    certify,
    certify_bernstein,
    certify_hoeffding,
    certify_kinds,
    predict,
)
from macer.certification.smooth import Smooth
from macer.smoothing import exact_noise as exact
from macer.smoothing.copies import CHUNK, Chunks, NoisyCopies
from macer.smoothing.exact_noise import BITS, levels, threshold
from macer.smoothing.streams import Purpose, stream
from macer.system.errors import Mistake

SIGMAS = [0.12, 0.25, 0.5, 1.0]


def draws(count, seed=0):
    return stream(seed, Purpose.ESTIMATION).bit_generator.random_raw(count)


def literal_noise(u, table):
    """The smallest i with U < T_i, by looking at every threshold in turn."""
    for i, t in enumerate(table.thresholds.tolist()):
        if u == t:
            return None
        if u < t:
            return table.lowest + i
    return table.lowest + len(table.thresholds)


# reference


@pytest.mark.slow
@pytest.mark.parametrize("sigma", SIGMAS)
def test_noise_is_the_smallest_level_above_the_draw(sigma):
    table = levels(sigma)
    raw = draws(3000)
    ranks, undecided = table.ranks(raw)
    expected = [literal_noise(int(r) >> 2, table) for r in raw]
    assert (table.lowest + ranks).tolist() == expected
    assert len(undecided) == 0


@pytest.mark.slow
@pytest.mark.parametrize("sigma", SIGMAS)
def test_draws_at_and_beside_every_threshold_are_ranked_right(sigma):
    table = levels(sigma)
    u = np.concatenate([table.thresholds + step for step in (-1, 0, 1)])
    u = np.unique(u[(u >= 0) & (u < 2**BITS)])
    ranks, undecided = table.ranks(u.astype(np.uint64) << np.uint64(2))
    equal = set(table.thresholds.tolist())
    assert set(u[undecided].tolist()) == equal
    for value, rank in zip(u.tolist(), ranks.tolist(), strict=True):
        if value not in equal:
            assert table.lowest + rank == literal_noise(value, table)


# law


@pytest.mark.parametrize("sigma", SIGMAS)
def test_thresholds_are_the_floors_of_the_normal_distribution(sigma):
    """Checked at 80 digits with another formula: Φ(x) = erfc(−x/√2) / 2."""
    table = levels(sigma)
    with mpmath.workdps(80):
        for i in range(table.lowest, table.lowest + len(table.thresholds), 7):
            x = mpmath.mpf(2 * i + 1) / (510 * mpmath.mpf(sigma))
            exact = mpmath.erfc(-x / mpmath.sqrt(2)) / 2 * 2**BITS
            assert threshold(i, sigma) == min(int(mpmath.floor(exact)), 2**BITS - 1)


def test_a_threshold_at_the_edge_of_a_cell_is_found_there(monkeypatch):
    """No draw at it may be taken for one above it, wherever the guide's cells begin."""
    edge = 5 << (BITS - 16)
    thresholds = np.array([0, edge, 2**BITS - 1], dtype=np.int64)
    monkeypatch.setattr(exact, "_thresholds", lambda sigma: (-1, thresholds))
    table = levels.__wrapped__(0.5)
    u = [1, edge - 1, edge, edge + 1, 2**BITS - 2, 0, 2**BITS - 1]
    ranks, undecided = table.ranks(np.array(u, dtype=np.uint64) << np.uint64(2))
    assert undecided.tolist() == [2, 5, 6]
    assert ranks[[0, 1, 3, 4]].tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_ends_leave_nothing_out(sigma):
    table = levels(sigma)
    assert table.thresholds[0] == 0 and table.thresholds[-1] == 2**BITS - 1
    assert (np.diff(table.thresholds) >= 0).all()


def test_noise_too_small_for_any_level_but_0_has_tables():
    """P(D ≠ 0) is below 2⁻⁶², as near to an integer as can be."""
    table = levels(1e-4)
    assert (table.lowest, table.thresholds.tolist()) == (-1, [0, 2**BITS - 1])
    ranks, undecided = table.ranks(np.array([1 << 2, 2**63], dtype=np.uint64))
    assert (ranks + table.lowest).tolist() == [0, 0] and not len(undecided)


@pytest.mark.parametrize("sigma", [0.12, 0.5])
def test_noise_has_the_distribution_of_a_rounded_gaussian(sigma):
    table = levels(sigma)
    noise = table.lowest + table.ranks(draws(400_000))[0].astype(int)
    edges = np.quantile(noise, np.linspace(0.02, 0.98, 40)).astype(int)
    edges = np.unique(edges)
    cdf = np.concatenate([[0], norm.cdf((2 * edges + 1) / (510 * sigma)), [1]])
    observed = np.histogram(noise, bins=np.concatenate([[-9999], edges + 0.5, [9999]]))[0]
    assert chisquare(observed, np.diff(cdf) * len(noise)).pvalue > 1e-3


@pytest.mark.medium
@pytest.mark.parametrize("sigma", SIGMAS)
def test_what_the_network_sees_depends_only_on_pixel_plus_noise(sigma):
    """All pairs: 256 pixels with every level of noise."""
    table = levels(sigma)
    ranks = np.arange(len(table.thresholds) + 1)
    seen = {}
    for pixel in range(256):
        for rank, value in zip(ranks, table.floats[pixel + ranks], strict=True):
            assert seen.setdefault(pixel + table.lowest + int(rank), float(value)) == value
    sums = np.array(sorted(seen))
    assert [seen[s] for s in sums] == (sums / 255).astype(np.float32).tolist()


def test_exact_copies_are_pixel_plus_noise_over_255():
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    copies = NoisyCopies(
        images,
        [7, 8],
        sigma=0.25,
        seed=1,
        purpose=Purpose.ESTIMATION,
        rows=2 * CHUNK,
        dtype=torch.float32,
    )
    batch, decided = copies.draw(Chunks(np.array([1, 0]), np.array([3, 0]), np.array([CHUNK, 10])))
    table = levels(0.25)
    raw = stream(1, Purpose.ESTIMATION, 8, 3).bit_generator.random_raw(CHUNK * 60)
    noise = (table.lowest + table.ranks(raw)[0].astype(int)).reshape(CHUNK, 4, 5, 3)
    expected = (images[1].permute(1, 2, 0).numpy() + noise) / 255
    np.testing.assert_array_equal(batch[:CHUNK].permute(0, 2, 3, 1), expected.astype(np.float32))
    assert decided.all()


def test_an_undecided_draw_makes_its_sample_invalid(monkeypatch):
    """With one draw set to a threshold, one vote is missing and nothing else changes."""
    images = torch.full((1, 1, 2, 2), 128, dtype=torch.uint8)
    copies = NoisyCopies(
        images, [0], sigma=0.5, seed=0, purpose=Purpose.ESTIMATION, rows=CHUNK, dtype=torch.float32
    )
    ranks = type(copies.table).ranks

    def with_one_undecided(self, raw):
        raw = raw.copy()
        raw[5, 1, 0, 0] = np.uint64(self.thresholds[len(self.thresholds) // 2]) << np.uint64(2)
        return ranks(self, raw)

    monkeypatch.setattr(type(copies.table), "ranks", with_one_undecided)
    _, decided = copies.draw(Chunks(np.array([0]), np.array([0]), np.array([CHUNK])))
    assert decided.tolist() == [row != 5 for row in range(CHUNK)]


class BitReader(nn.Module):
    """Tells a black image from one at 8/255 by the low-order bits that survive the noise.

    A float32 sum 8/255 + η is a multiple of 2⁻²⁹, however small it is; 0 + η is η itself, which
    has finer bits wherever |η| < 2⁻⁶, at about one pixel in a hundred.
    """

    def forward(self, x):
        values = x.flatten(1).double() * 2**29
        fine = (values != values.round()).any(dim=1).double()
        return torch.stack([fine, torch.full_like(fine, 0.5)], dim=1)


def test_ordinary_noise_certifies_a_bit_reader_falsely_and_exact_noise_does_not():
    black = torch.zeros(1, 1, 32, 32, dtype=torch.uint8)
    distance = math.hypot(*[8 / 255] * 1024)

    def certificates(exact):
        return [
            certify(BitReader(), image, sigma=1.0, n=2000, exact=exact)[0]
            for image in (black, black + 8)
        ]

    at_black, at_grey = certificates(exact=False)
    assert at_black.label == 0 and at_black.radius > 2 * distance  # "the same label everywhere"
    assert at_grey.label == 1  # but not here, well inside

    at_black, at_grey = certificates(exact=True)
    assert at_black.label == at_grey.label or max(at_black.radius, at_grey.radius) < distance


def with_radius(ask, **settings):
    def answer(image):
        [certificate] = ask(BitReader(), image, sigma=1.0, n=2000, **settings)
        return certificate.label, certificate.radius

    return answer


PUBLIC = {
    "certify": with_radius(certify),
    "certify_hoeffding": with_radius(certify_hoeffding, beta=100.0),
    "certify_bernstein": with_radius(certify_bernstein, beta=100.0),
    "certify_kinds": with_radius(lambda *a, **k: certify_kinds(*a, [Kind()], **k)[0]),
    "certify_at": with_radius(certify_at, radius=1.1),
    "Smooth": lambda image: Smooth(BitReader(), 2, 1.0).certify(image[0], 100, 2000, 0.001),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("ask", PUBLIC.values(), ids=PUBLIC.keys())
def test_no_public_function_certifies_the_bit_reader_falsely_by_default(ask, dtype):
    black = torch.zeros(1, 1, 32, 32, dtype=torch.uint8)
    distance = math.hypot(*[8 / 255] * 1024)
    images = (black, black + 8)
    if dtype.is_floating_point:
        images = ((black / 255).to(dtype), ((black + 8) / 255).to(dtype))
    (a, a_radius), (b, b_radius) = map(ask, images)
    assert a == b or max(a_radius, b_radius) < distance


def test_predict_draws_exact_noise_by_default():
    grey = torch.full((1, 1, 32, 32), 8 / 255)
    ask = partial(predict, BitReader(), grey, sigma=1.0, n=200)
    assert ask() == ask(exact=True) != ask(exact=False)
    assert [Smooth(BitReader(), 2, 1.0).predict(grey[0], 200, 0.001)] == ask()


def test_a_certificate_says_which_noise_it_rests_on():
    black, grey = torch.zeros(1, 1, 4, 4), torch.full((1, 1, 4, 4), 0.3001)
    for ask in (certify, certify_bernstein, partial(certify_at, radius=0.1)):
        ask = partial(ask, BitReader(), sigma=1.0, n=200)
        assert [c.exact for c in ask(black)] == [True]
        assert [c.exact for c in ask(black, exact=False)] == [False]
        assert [c.exact for c in ask(grey)] == [False]
        assert [c.exact for c in ask(torch.cat([black, grey]))] == [False, False]


# refusal


def test_the_largest_noise_level_has_fewer_than_2_to_the_14_thresholds():
    assert threshold(-8191, 3.5) == 0 and threshold(8190, 3.5) == 2**BITS - 1


@pytest.mark.parametrize("sigma", [0.0, -1.0, 3.6, math.nan])
def test_a_noise_level_without_tables_is_refused(sigma):
    with pytest.raises(Mistake, match=r"sigma must be in \(0, 3.5\] for exact noise"):
        levels(sigma)


def test_the_largest_noise_level_has_tables(monkeypatch):
    ends = np.array([0, 2**BITS - 1], dtype=np.int64)
    monkeypatch.setattr(exact, "_thresholds", lambda sigma: (-1, ends))
    assert levels.__wrapped__(3.5).sigma == 3.5
    with pytest.raises(Mistake, match="sigma must be in"):
        levels.__wrapped__(float(np.nextafter(3.5, 4)))


def test_images_off_the_grid_are_refused():
    with pytest.raises(Mistake, match="images must be 8-bit, multiples of 1/255, for exact noise"):
        certify(BitReader(), torch.full((1, 1, 1, 4), 0.3), sigma=0.25, exact=True)


def test_known_answers():
    """P(D ≤ 0) = Φ(1 / 127.5) and P(D ≤ −1) = 1 − P(D ≤ 0), for σ = 0.25."""
    assert threshold(0, 0.25) == 2**61 + 14429628818883086
    assert threshold(-1, 0.25) == 2**62 - threshold(0, 0.25) - 1
