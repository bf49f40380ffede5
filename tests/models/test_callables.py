"""What a callable may return, and what is made of it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from macer.models.callables import CallableNetwork, as_network
from macer.system.errors import Mistake

BATCH = torch.tensor([[0.0, 1.0], [3.0, 2.0], [5.0, 4.0]])
LOGITS = [[0.5, 1.5], [3.5, 2.5], [5.5, 4.5]]
LABELS = [1, 0, 0]


def answered(answer, num_classes=None):
    return CallableNetwork(lambda x: answer, num_classes)(BATCH)


# law


@pytest.mark.parametrize(
    "form",
    [
        list,
        np.array,
        lambda rows: np.array(rows, dtype=">f4"),
        lambda rows: np.array(rows)[:, ::-1][:, ::-1],
        torch.tensor,
        lambda rows: torch.tensor(rows, requires_grad=True),
        lambda rows: torch.tensor(rows, dtype=torch.bfloat16),
        lambda rows: SimpleNamespace(logits=torch.tensor(rows)),
        lambda rows: SimpleNamespace(logits=rows),
    ],
)
def test_logits_may_have_any_form(form):
    logits = answered(form(LOGITS))
    assert logits.is_floating_point() and logits.tolist() == LOGITS


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        torch.tensor,
        lambda labels: np.array(labels, dtype=np.uint8),
        lambda labels: np.array(labels, dtype=">i4"),
        lambda labels: np.array(labels, dtype=bool),
        lambda labels: SimpleNamespace(logits=labels),
    ],
)
def test_a_label_is_a_logit_of_1_among_zeros(form):
    assert answered(form(LABELS), 3).tolist() == [[0, 1, 0], [1, 0, 0], [1, 0, 0]]


def test_the_callable_has_arrays_of_its_own():
    kept = []

    def greedy(x):
        kept.append(x)
        x += 1
        return x

    batch = torch.arange(24.0).view(3, 2, 2, 2).permute(0, 3, 1, 2)
    CallableNetwork(lambda x: greedy(x).reshape(3, -1), None)(batch)
    assert torch.equal(batch, torch.arange(24.0).view(3, 2, 2, 2).permute(0, 3, 1, 2))
    [array] = kept
    assert array.dtype == np.float32 and array.flags.c_contiguous
    np.testing.assert_array_equal(array, batch.numpy() + 1)


def test_a_module_is_the_network_itself():
    model = nn.Linear(2, 2)
    assert as_network(model) is as_network(model, 2) is model


def test_what_a_callable_raises_keeps_its_traceback():
    def broken(x):
        raise KeyError("weights")

    with pytest.raises(KeyError, match="weights") as error:
        CallableNetwork(broken, None)(BATCH)
    assert error.traceback[-1].name == "broken"


# refusal


@pytest.mark.parametrize(
    ("model", "got"),
    [("resnet", "str"), (None, "NoneType"), (nn.Linear, "the class Linear")],
)
def test_what_cannot_be_called_with_a_batch_is_refused(model, got):
    line = "an nn.Module or a callable from a batch to logits or labels, such as .*predict_proba"
    with pytest.raises(Mistake, match=rf"^the model must be {line}, got {got}$"):
        as_network(model)


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (LOGITS[:2], r"float64 of the shape \(2, 2\)"),
        ([[0.5]] * 3, r"float64 of the shape \(3, 1\)"),
        ([0.5] * 3, r"float64 of the shape \(3,\)"),
        ([[0, 1]] * 3, r"int64 of the shape \(3, 2\)"),
        ([0, 1], r"int64 of the shape \(2,\)"),
        (np.ones((3, 2), complex), r"complex128 of the shape \(3, 2\)"),
        ([["a", "b"]] * 3, r"<U1 of the shape \(3, 2\)"),
        (["setosa"] * 3, r"<U6 of the shape \(3,\)"),
        ([[0.5], [0.5, 0.5]], r"object of the shape \(\)"),
        (None, r"object of the shape \(\)"),
        ({"scores": LOGITS}, r"object of the shape \(\)"),
    ],
)
def test_what_is_neither_logits_nor_labels_is_refused(answer, got):
    line = r"logits, floats of the shape .*, or labels, integers of the shape \(rows,\)"
    with pytest.raises(Mistake, match=rf"^the model must return {line}, got {got} for 3 rows$"):
        answered(answer, 3)


@pytest.mark.parametrize("wrong", [-1, 3, 2**40])
def test_labels_outside_of_the_classes_are_refused(wrong):
    line = "labels must be integers from 0 to num_classes − 1, 2, got {}; number the model's"
    with pytest.raises(Mistake, match=f"^{line.format(wrong)}"):
        answered([0, wrong, 1], 3)


def test_labels_need_the_number_of_classes():
    with pytest.raises(Mistake, match=r"^num_classes must be given for a model that returns lab"):
        answered(LABELS)


@pytest.mark.parametrize("number", [-1, 0, 1])
def test_fewer_than_two_classes_are_refused(number):
    for model in (nn.Linear(2, 2), lambda x: x):
        with pytest.raises(Mistake, match=f"^num_classes must be at least 2, got {number}$"):
            as_network(model, number)
