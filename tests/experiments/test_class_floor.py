"""The least offsets of the logits by which every class has a share of its images right."""

import itertools
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from macer.experiments.class_floor import class_accuracies, least_offsets
from macer.system.errors import Mistake

CLASSES = ("ant", "bee", "cat", "dog")


def problem(seed: int, images: int = 40, copies: int = 5) -> tuple[Tensor, Tensor]:
    """Noisy logits of four classes; the last two, much alike, are given up."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (images,), generator=random)
    logits = torch.randn(images, copies, 4, generator=random)
    logits += 1.5 * torch.nn.functional.one_hot(labels, 4)[:, None]
    logits[..., 2] += logits[..., 3] / 2
    logits[..., 2:] -= torch.tensor([2.5, 3.0])
    return logits, labels


def counted(logits: Tensor, labels: Tensor, offsets: Tensor) -> list[Fraction | None]:
    """a_c(b), image by image and copy by copy."""
    right: dict[int, list[bool]] = {c: [] for c in range(4)}
    for image, label in zip(logits.tolist(), labels.tolist(), strict=True):
        votes = [max(range(4), key=lambda c: copy[c] + float(offsets[c])) for copy in image]
        right[label].append(2 * votes.count(label) > len(votes))
    return [Fraction(sum(each), len(each)) if each else None for each in right.values()]


# reference


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("copies", [1, 4, 5])
def test_accuracies_are_those_counted_one_by_one(seed: int, copies: int) -> None:
    logits, labels = problem(seed, copies=copies)
    offsets = torch.tensor([0.0, 0.3, 0.0, 2.5])
    expected = counted(logits, labels, offsets)
    assert class_accuracies(logits, labels, offsets) == [float(share) for share in expected]  # type: ignore[arg-type]


def test_a_class_without_images_has_no_accuracy() -> None:
    logits, labels = problem(0)
    assert class_accuracies(logits, labels.clamp(max=2), torch.zeros(4))[3] is None


# law


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("floor", [0.1, 0.3, 0.5])
def test_no_class_is_below_the_floor_and_no_offset_could_be_smaller(
    seed: int, floor: float
) -> None:
    logits, labels = problem(seed)
    offsets = least_offsets(logits, labels, floor, CLASSES)
    assert min(class_accuracies(logits, labels, offsets)) >= floor  # type: ignore[type-var]
    assert offsets.min() == 0
    for c in offsets.nonzero().flatten():
        less = offsets.clone()
        less[c] -= 1e-4
        assert class_accuracies(logits, labels, less)[c] < floor  # type: ignore[operator]


@pytest.mark.medium
def test_every_other_solution_is_above_it() -> None:
    logits, labels = problem(1)
    least = least_offsets(logits, labels, 0.4, CLASSES)
    steps, others = torch.linspace(0, 5, 9).tolist(), 0
    for values in itertools.product(steps, repeat=4):
        offsets = torch.tensor(values, dtype=torch.float64)
        if min(class_accuracies(logits, labels, offsets)) >= 0.4:  # type: ignore[type-var]
            others += 1
            assert (offsets >= least - 1e-9).all()
    assert others > 10


def test_nothing_is_added_where_no_class_is_below_the_floor() -> None:
    logits, labels = problem(0)
    logits[..., 2:] += torch.tensor([2.5, 3.0])
    assert least_offsets(logits, labels, 0.3, CLASSES).tolist() == [0.0] * 4


def test_a_share_of_thirty_images_is_not_one_image_more() -> None:
    """.1 · 30 is above 3 in floating point."""
    labels = torch.zeros(30, dtype=torch.int64)
    logits = torch.zeros(30, 1, 2)
    logits[:, 0, 1] = torch.arange(1, 31)
    offsets = least_offsets(logits, labels, 0.1, CLASSES)
    assert offsets.tolist() == pytest.approx([3.0, 0.0], abs=1e-4)


# refusal


def test_a_floor_that_the_classes_cannot_reach_together_is_refused() -> None:
    logits = torch.randn(40, 3, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(Mistake) as refusal:
        least_offsets(logits, torch.arange(40) % 4, 0.9, CLASSES)
    assert str(refusal.value) == (
        "at_least must be a share that all classes reach at once, got 0.9: what ant, bee, cat, dog "
        "win, others of them lose; lower it"
    )
