import pytest
import reference
import torch
from loss_batches import EXTREMES, extreme_logits, random_logits

from macer.losses.consistency import consistency_terms
from macer.losses.distillation import distillation_term
from macer.losses.gaussian import gaussian_losses

TARGETS = ("copies", "mean")


# reference


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("k", [1, 4])
def test_the_term_is_the_divergence_from_the_teachers_softened_outputs(k, temperature, targets):
    u, v = random_logits(0, k=k)[0], random_logits(1, k=k)[0]
    term = distillation_term(u, v, temperature=temperature, targets=targets)
    settings = {"temperature": temperature, "targets": targets}
    expected = [
        reference.distillation(*pair, **settings) for pair in zip(u.numpy(), v.numpy(), strict=True)
    ]
    torch.testing.assert_close(term, torch.tensor(expected).double(), rtol=1e-9, atol=1e-12)


# law


def test_outputs_that_are_the_teachers_have_no_divergence():
    u, _ = random_logits(2)
    shifted = u + torch.randn(16, 4, 1)  # the same softmax
    term = distillation_term(shifted, u, temperature=2.0, targets="copies")
    torch.testing.assert_close(term, torch.zeros(16).double(), rtol=0, atol=1e-9)
    term = distillation_term(
        u[:, :1].expand(-1, 4, -1), u[:, :1].expand(-1, 4, -1), temperature=2.0, targets="mean"
    )
    torch.testing.assert_close(term, torch.zeros(16).double(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("targets", TARGETS)
def test_of_a_teacher_that_is_sure_it_is_the_cross_entropy_of_its_labels(targets):
    u, labels = random_logits(3)
    sure = 1e4 * torch.nn.functional.one_hot(labels, 10).double()[:, None].expand(-1, 4, -1)
    term = distillation_term(u, sure, temperature=1.0, targets=targets)
    torch.testing.assert_close(term, gaussian_losses(u, labels))


def test_the_mean_of_the_networks_own_outputs_is_consistencys_target():
    u, _ = random_logits(4)
    term = distillation_term(u, u, temperature=1.0, targets="mean")
    torch.testing.assert_close(term, consistency_terms(u, lam=1.0, eta=0.0))


def test_at_a_high_temperature_it_is_half_the_squared_distance_of_centred_logits():
    """T² KL → ‖v − u‖² / 2 classes, the limit of [Hinton+15, Sec. 2.1]."""
    u, v = random_logits(5)[0], random_logits(6)[0]
    distance = (v - u) - (v - u).mean(dim=2, keepdim=True)
    term = distillation_term(u, v, temperature=1e4, targets="copies")
    torch.testing.assert_close(term, distance.square().sum(2).mean(1) / 20, rtol=1e-2, atol=0)


@pytest.mark.parametrize("targets", TARGETS)
def test_gradients_pass_gradcheck(targets):
    u, v = (random_logits(seed, images=3, k=2, classes=3)[0] for seed in (7, 8))
    assert torch.autograd.gradcheck(
        lambda x: distillation_term(x, v, temperature=2.0, targets=targets), u.requires_grad_()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("other", EXTREMES)
def test_terms_and_gradients_are_finite_on_extreme_logits(extreme, other, targets, dtype):
    u, _ = extreme_logits(extreme, k=3, dtype=dtype)
    v, _ = extreme_logits(other, k=3, dtype=dtype)
    term = distillation_term(u, v.detach(), temperature=1.0, targets=targets)
    term.sum().backward()
    assert term.dtype == torch.float32 and term.isfinite().all()
    assert u.grad.isfinite().all()
