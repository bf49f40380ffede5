"""Draw the pictures of README and docs into docs/pictures, from files of the repository.

python docs/scripts/draw_pictures.py          all of them
python docs/scripts/draw_pictures.py radius   some of them
"""

import csv
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from drawing import BLUE, FAINT, GREEN, RED, arrow, down, pixels, text, titled
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from scipy.special import ndtr, ndtri
from scipy.stats import norm
from torch import Tensor
from torch.nn import Module

import macer
from macer.attacks.geometry import to_grid
from macer.attacks.images import pgd
from macer.certification.predict_files import noise_number
from macer.data.selection import Selection
from macer.data.sets import load
from macer.reporting.curves import draw_steps
from macer.reporting.figures import TEXT_COLOUR, label_axes, save_picture
from macer.reporting.history import History, Look
from macer.reporting.history import draw as draw_histories
from macer.reporting.leaderboard import board
from macer.reporting.logs import read_log, select
from macer.reporting.scores import average_certified_radius, certified_accuracy
from macer.reporting.tables import RADII
from macer.smoothing.confidence import clopper_pearson_lower
from macer.smoothing.copies import CHUNK, Chunks, NoisyCopies
from macer.smoothing.streams import Purpose, fill_normal

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/pictures"

# What is certified in the first picture: a nine that looks like a four.
ZOO = "zoo:mnist-0.50"
IMAGE = 62
N = 1_000
SHOWN = 4  # noisy copies

SIGMA = 0.5  # of pictures without a model

POINTS = 400  # of a curve: all steps would be four times as many bytes

# Logs of CIFAR-10 at σ 0.5, with what each training took; docs/log/record.md has the sources.
TRAININGS = {
    "results/cifar10-0.50-record.tsv.gz": ("macer record", "391 s, one H200"),
    "results/published/cat-rs_sigma0.5.tsv.gz": ("CAT-RS", "published"),
    "results/cifar10-0.50-fast.tsv.gz": ("macer fast", "296 s, one H200"),
    "results/published/macer_sigma0.5.tsv.gz": ("MACER", "published, 61.6 h, one P100"),
}


class Votes(NamedTuple):
    """An image, the copies that are shown with their votes, and the certificate of all votes."""

    image: Tensor  # (height, width), uint8
    copies: Tensor  # (SHOWN, height, width)
    labels: list[int]
    certificate: macer.Certificate
    sigma: float


def votes_on_an_image() -> Votes:
    """Certify the image; the copies are the first ones that voted."""
    images = torch.from_numpy(load("mnist-sample", "test").images[IMAGE : IMAGE + 1])
    model, card = macer.load_model(ZOO)
    [certificate] = macer.certify(model, images, sigma=card.sigma, n=N, indices=[IMAGE])
    noisy = NoisyCopies(
        images,
        [IMAGE],
        sigma=card.sigma,
        seed=0,
        purpose=Purpose.ESTIMATION,
        rows=CHUNK,
        dtype=torch.float32,
    )
    batch, _ = noisy.draw(Chunks(np.array([0]), np.array([0]), np.array([CHUNK])))
    with torch.no_grad():
        labels = model(batch[:SHOWN]).argmax(1).tolist()
    return Votes(images[0, 0], batch[:SHOWN, 0].clone(), labels, certificate, card.sigma)


def certificate() -> Figure:
    """What a certificate is: an image, noisy copies, their votes, and the ball."""
    votes = votes_on_an_image()
    figure = titled("A certificate: the label holds in the whole ball")
    pixels(figure, (0.03, 0.595, 0.165, 0.22), votes.image / 255)
    text(figure, 0.113, 0.855, "an image x")
    text(figure, 0.445, 0.855, f"{N:,} noisy copies, σ = {votes.sigma:g}")
    text(figure, 0.815, 0.855, "a bound and a radius")
    for i, (copy, label) in enumerate(zip(votes.copies, votes.labels, strict=True)):
        left = 0.27 + 0.088 * i
        pixels(figure, (left, 0.695, 0.082, 0.115), copy.clamp(0, 1))
        text(figure, left + 0.041, 0.645, f"“{label}”", size=9)
    text(figure, 0.44, 0.58, "the network votes on each", size=9, colour=FAINT)
    arrow(figure, (0.205, 0.71), (0.262, 0.71))
    arrow(figure, (0.44, 0.56), (0.44, 0.49))
    _bars(figure.add_axes((0.31, 0.1, 0.25, 0.36)), votes.certificate)
    arrow(figure, (0.57, 0.33), (0.63, 0.33))
    _ball(figure.add_axes((0.64, 0.01, 0.35, 0.66)), votes)
    p_a, radius = votes.certificate.p_a, votes.certificate.radius
    text(figure, 0.815, 0.76, f"p_A ≥ {down(p_a, 4)}", size=10)
    text(figure, 0.815, 0.69, f"R = σ Φ⁻¹({down(p_a, 4)}) = {down(radius)}", size=10)
    text(figure, 0.135, 0.2, f"{ZOO}\nMNIST, test image {IMAGE}\nα = 0.001", 9, FAINT)
    return figure


def _bars(axes: Axes, certificate: macer.Certificate) -> None:
    """The votes of each class that has some, most first."""
    counts = certificate.estimation
    order = [c for c in np.argsort(counts)[::-1].tolist() if counts[c]]
    colours = [BLUE if c == certificate.label else RED for c in order]
    axes.barh(range(len(order)), [counts[c] for c in order], color=colours, height=0.62)
    for place, c in enumerate(order):
        axes.text(counts[c] + 25, place, f"{counts[c]:,}", va="center", fontsize=9)
    axes.set_yticks(range(len(order)), [f"“{c}”" for c in order])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.3 * max(counts)), xticks=[])
    axes.tick_params(length=0, labelcolor=TEXT_COLOUR)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_xlabel("votes", fontsize=9, color=FAINT)


def _ball(axes: Axes, votes: Votes) -> None:
    """The ball around x, the image at its centre."""
    axes.add_patch(Circle((0, 0), 1, facecolor=BLUE, alpha=0.12))
    axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=BLUE, lw=1.8))
    axes.imshow(
        votes.image.numpy(), cmap="gray", extent=(-0.3, 0.3, -0.3, 0.3), interpolation="nearest"
    )
    axes.plot([0.3, 1], [0, 0], color=TEXT_COLOUR, lw=1.2)
    axes.text(0.64, 0.05, "R", fontsize=11, ha="center")
    axes.text(0, -0.55, f"“{votes.certificate.label}”", fontsize=12, ha="center", color=BLUE)
    axes.text(0, -0.76, "for every image", fontsize=9, ha="center", color=BLUE)
    axes.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal")
    axes.axis("off")


def curves() -> Figure:
    """Radius–accuracy curves of CIFAR-10 at σ 0.5, with what each training took."""
    every_fifth = Selection(skip=5)
    logs = [select(read_log(ROOT / file), every_fifth) for file in TRAININGS]
    figure = titled("Certified accuracy on CIFAR-10, σ = 0.5")
    axes = figure.add_axes((0.11, 0.13, 0.86, 0.76))
    radii = np.linspace(0, max(float(log.radius.max()) for log in logs), POINTS)
    lines = draw_steps(axes, [(radii, certified_accuracy(log, radii)) for log in logs])
    drawn = dict([_points_of_sun(axes)])  # by ACR
    for line, (file, (name, cost)), log in zip(lines, TRAININGS.items(), logs, strict=True):
        acr = average_certified_radius(log)
        line.set_label(f"{name}: ACR {acr:.3f}, {cost}")
        line.set_linewidth(1.5 if "published" in file else 2.4)
        drawn[acr] = line
    axes.set_ylim(0, 0.8)
    axes.set_yticks(np.linspace(0, 0.8, 5))
    axes.legend(
        handles=[drawn[acr] for acr in sorted(drawn, reverse=True)],
        frameon=False, fontsize=9.5, labelcolor=TEXT_COLOUR, loc="upper right",
    )  # fmt: skip
    images = f"{len(logs[0].idx):,} test images, every 5th · n = 100,000 · α = 0.001"
    axes.text(0.02, 0.03, images, transform=axes.transAxes, fontsize=9, color=FAINT)
    return figure


def _points_of_sun(axes: Axes) -> tuple[float, Line2D]:
    """Sun et al., whose log may not be copied: points at the radii that the leaderboard has.

    Returns:
        their ACR, and the points.
    """
    [sun] = [row for row in board(0.5, "every-5th").rows if row.method == "sun"]
    points = [(r, share) for r, share in zip(RADII, sun.accuracies, strict=True) if share > 0]
    [line] = axes.plot(
        *zip(*points, strict=True), "D", color=TEXT_COLOUR, markersize=4, fillstyle="none",
        label=f"{sun.name}: ACR {sun.acr:.3f}, published",
    )  # fmt: skip
    return sun.acr, line


def attacks() -> Figure:
    """What a radius means: the image of the first picture, attacked inside its ball and outside."""
    model, card = macer.load_model(ZOO)
    image = torch.from_numpy(load("mnist-sample", "test").images[IMAGE])
    [certificate] = macer.certify(
        model, image[None], sigma=card.sigma, n=10_000, indices=[noise_number(image)]
    )
    lengths = [times * certificate.radius for times in (0, 0.5, 1, 2, 4)]
    images = _attacked(model, image, certificate.label, card.sigma, lengths)
    found = macer.certify(model, images, sigma=card.sigma, n=N)
    figure = titled("A real attack, inside the certified ball and outside", height=3.1)
    for i, (length, picture, one) in enumerate(zip(lengths, images, found, strict=True)):
        left = 0.05 + 0.18 * i + (0.06 if i > 2 else 0)
        pixels(figure, (left, 0.49, 0.15, 0.276), picture[0] / 255)
        text(figure, left + 0.075, 0.8, f"moved by {down(length, 2)}" if i else "x", size=9)
        colour = BLUE if one.label == certificate.label else RED
        text(figure, left + 0.075, 0.385, f"“{one.label}”", size=13, colour=colour)
        shares = [one.estimation[c] / N for c in (certificate.label, found[-1].label)]
        axes = figure.add_axes((left, 0.14, 0.15, 0.2))
        axes.barh([0, 1], shares, color=[BLUE, RED], height=0.7)
        axes.set(xlim=(0, 1), xticks=[])
        axes.set_yticks([0, 1], [f"“{c}”" for c in (certificate.label, found[-1].label)])
        axes.invert_yaxis()
        axes.tick_params(length=0, labelcolor=TEXT_COLOUR, labelsize=8, pad=1)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    figure.add_artist(Line2D([0.6, 0.6], [0.1, 0.86], color=FAINT, lw=1, ls="--"))
    text(figure, 0.3, 0.035, f"within R = {down(certificate.radius, 4)}: certified", colour=BLUE)
    text(figure, 0.79, 0.035, "beyond R: nothing is promised", colour=RED)
    return figure


def _attacked(
    model: Module, image: Tensor, label: int, sigma: float, lengths: Sequence[float]
) -> Tensor:
    """An 8-bit image for each length, which PGD through the noise finds against the label."""
    images = image.expand(len(lengths), -1, -1, -1)
    noise = torch.empty((64, *image.shape))
    fill_normal(noise, seed=0, purpose=Purpose.ATTACK, image=IMAGE, chunk=0)
    labels = torch.full((len(lengths),), label)
    copies = sigma * noise.expand(len(lengths), *noise.shape)
    at_most = torch.tensor(lengths)
    found = pgd(model, images / 255, labels, copies, epsilon=at_most, steps=20)
    return to_grid(images, found.double() - images.double() / 255)


def objective() -> Figure:
    """The two terms of MACER's loss over ẑ of the true class, for two classes."""
    figure = titled("Cross-entropy is nearly 0 where the radius still grows")
    axes = figure.add_axes((0.1, 0.13, 0.87, 0.75))
    share = np.linspace(0.001, 0.9999, 600)
    right = share[share > 0.5]
    radii = SIGMA * ndtri(right)
    axes.plot(share, -np.log(share), color=RED, lw=1.8, label="cross-entropy, −log ẑ")
    axes.plot(right, radii, color=BLUE, lw=2.4, label="certified radius, σ Φ⁻¹(ẑ)")
    axes.axvline(0.5, color=FAINT, lw=0.8, ls=":")
    axes.text(0.25, 0.15, "wrong label:\nno radius", ha="center", fontsize=9, color=FAINT)
    for at, up in ((0.9, 0.16), (0.99, 0.12)):
        reached = SIGMA * float(ndtri(at))
        axes.plot([at], [reached], "o", color=BLUE, markersize=5)
        axes.text(at - 0.015, reached + up, f"ẑ = {at}: R = {down(reached, 2)}",
                  ha="right", fontsize=9, color=BLUE)  # fmt: skip
        axes.plot([at], [-np.log(at)], "o", color=RED, markersize=5)
    axes.set(xlim=(0, 1.005), ylim=(0, 2.4))
    label_axes(axes, "ẑ of the true class", f"loss, radius (σ = {SIGMA})")
    axes.legend(frameon=False, fontsize=9.5, labelcolor=TEXT_COLOUR, loc="upper center")
    return figure


def half_space() -> Figure:
    """Why there is a radius: noise around x and around x + δ, and the worst classifier."""
    figure = titled("The worst classifier is a half-space")
    axes = figure.add_axes((0.04, 0.12, 0.92, 0.74))
    sigma, p_a, shift = SIGMA, 0.9, 0.45
    boundary = sigma * ndtri(p_a)
    x = np.linspace(-1.7, 2.2, 160)
    for centre, colour, name in ((0.0, BLUE, "x"), (shift, RED, "x + δ")):
        density = norm.pdf(x, centre, sigma)
        axes.plot(x, density, color=colour, lw=1.8)
        axes.fill_between(x, density, where=x <= boundary, color=colour, alpha=0.13, lw=0)
        axes.plot([centre, centre], [0, norm.pdf(0, 0, sigma)], color=colour, lw=0.8, ls=":")
        axes.text(centre, -0.075, name, ha="center", color=colour, fontsize=11)
    axes.axvline(boundary, color=TEXT_COLOUR, lw=1.2)
    moved = float(ndtr((boundary - shift) / sigma))
    axes.text(-1.7, 0.73, f"p_A = {p_a:.2f} at x", color=BLUE, fontsize=10)
    axes.text(-1.7, 0.64, f"at least {moved:.2f} at x + δ", color=RED, fontsize=10)
    axes.text(boundary - 0.05, 0.93, "class A", ha="right", fontsize=10)
    axes.text(boundary + 0.05, 0.93, "not A", fontsize=10)
    axes.annotate(
        "", (boundary, 0.86), (0, 0.86), arrowprops={"arrowstyle": "<->", "color": TEXT_COLOUR}
    )
    axes.text(boundary + 0.05, 0.845, f"R = σ Φ⁻¹(p_A) = {boundary:.2f}", fontsize=10)
    axes.set(xlim=(-1.75, 2.25), ylim=(-0.1, 1.0), yticks=[], xticks=[])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("along δ, the direction of the attack (σ = 0.5)", fontsize=9, color=FAINT)
    return figure


def radius() -> Figure:
    """The radius over the share of votes, for several n."""
    figure = titled("Radius by the share of votes for the top class")
    axes = figure.add_axes((0.12, 0.13, 0.85, 0.75))
    shares = np.linspace(0.5, 1, 101)
    for n, colour in ((100, RED), (1_000, GREEN), (100_000, BLUE)):
        lower = [clopper_pearson_lower(round(share * n), n, alpha=0.001) for share in shares]
        radii = [max(0.0, float(ndtri(p))) for p in lower]
        axes.plot(
            shares, radii, color=colour, lw=1.8, label=f"n = {n:,}: at most {radii[-1]:.2f} σ"
        )
    axes.set(xlim=(0.5, 1), ylim=(0, 4))
    label_axes(axes, "share of the n votes for the top class", "certified radius in units of σ")
    axes.legend(frameon=False, fontsize=9.5, labelcolor=TEXT_COLOUR, loc="upper left")
    axes.text(0.02, 0.74, "α = 0.001", transform=axes.transAxes, fontsize=9, color=FAINT)
    return figure


def paper_and_fast() -> Figure:
    """Held-out radii of the paper's recipe and of the fast one while they were trained."""
    lines = csv.DictReader((ROOT / "results/history-cifar10-0.25.csv").read_text().splitlines())
    histories: dict[str, History] = {}
    for line in lines:
        look = Look(int(line["epoch"]), *(float(line[field]) for field in Look._fields[1:]))
        before = histories[line["run"]].looks if line["run"] in histories else ()
        histories[line["run"]] = History(
            line["run"], float(line["sigma"]), int(line["images"]), int(line["votes"]),
            (*before, look),
        )  # fmt: skip
    return draw_histories(list(histories.values()))


PICTURES: dict[str, Callable[[], Figure]] = {
    "attacks": attacks,
    "certificate": certificate,
    "curves": curves,
    "half-space": half_space,
    "objective": objective,
    "paper-and-fast": paper_and_fast,
    "radius": radius,
}


def draw(names: Sequence[str], folder: Path = FOLDER) -> None:
    """Write pictures by their names."""
    for name in names:
        save_picture(PICTURES[name](), folder / f"{name}.svg")


if __name__ == "__main__":
    draw(sys.argv[1:] or list(PICTURES))
