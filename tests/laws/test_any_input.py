"""Certificates of inputs of any shape, and of classifiers that are no modules of torch."""

import threading
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from macer.certification.anytime import certify_anytime
from macer.certification.fixed_radius import certify_at
from macer.certification.largest_radius import Kind, certify, certify_kinds, predict
from macer.certification.smooth import Smooth
from macer.smoothing import rows as probe
from macer.system.errors import Mistake

ANY = {"value_range": None}
QUICK = {"sigma": 0.5, "n0": 50, "n": 500}
LINE = "the model must give an image the same logits"


def by_kinds(model, inputs, **settings):
    return certify_kinds(model, inputs, [Kind()], **settings)


def by_smooth(model, inputs, *, sigma, n, num_classes=2, **settings):
    smooth = Smooth(model, num_classes, sigma, **settings)
    return [smooth.certify(x, 50, n, 0.001) for x in inputs]


def by_anytime(model, inputs, **settings):
    *_, certificates = certify_anytime(model, inputs, **settings)
    return certificates


ASK = [certify, predict, partial(certify_at, radius=0.05), by_kinds, by_smooth, by_anytime]


def half_space(x):
    """Class 1 where w·x > 0, w = (1, …, 1)/√d: an input's radius is its distance |w·x|."""
    margin = x.reshape(len(x), -1).sum(1) / np.prod(x.shape[1:]) ** 0.5
    return np.stack([-margin, margin], axis=1)


def always(label, x):
    return np.full(len(x), label)


class HalfSpace(nn.Module):
    def forward(self, x):
        margin = x.flatten(1).sum(dim=1) / x[0].numel() ** 0.5
        return torch.stack([-margin, margin], dim=1)


def at_distances(distances, shape):
    """Inputs at such distances from the boundary, one each."""
    size = int(np.prod(shape))
    inputs = np.random.default_rng(0).normal(0, 3, (len(distances), size))
    inputs += (np.array(distances) / size**0.5 - inputs.mean(axis=1))[:, None]
    return inputs.reshape(-1, *shape)


# law


@pytest.mark.parametrize("shape", [(7,), (1, 50), (3, 4), (2, 3, 4), (2, 2, 3, 2), (3, 1, 2, 1, 2)])
@pytest.mark.parametrize("model", [half_space, HalfSpace()], ids=["callable", "module"])
def test_a_half_spaces_certificate_is_near_its_distance_and_not_beyond_it(model, shape):
    distances = [0.3, -0.6, 0.9, -1.2]
    inputs = at_distances(distances, shape)
    certificates = certify(model, inputs, sigma=0.75, n=10_000, alpha=1e-4, **ANY)
    for certificate, distance in zip(certificates, distances, strict=True):
        assert certificate.label == (distance > 0)
        assert abs(distance) - 0.08 < certificate.radius <= abs(distance)
        assert not certificate.exact
    assert predict(model, inputs, sigma=0.75, **ANY) == [1, 0, 1, 0]
    radii = [c.radius for c in certify_at(model, inputs, radius=0.5, sigma=0.75, **ANY)]
    assert radii == [0.0, 0.5, 0.5, 0.5]


@pytest.mark.slow
def test_a_logistic_regressions_certificate_is_near_its_distance_and_not_beyond_it():
    linear_model = pytest.importorskip("sklearn.linear_model")
    random = np.random.default_rng(0)
    x = random.normal(0, 40, (300, 5)) + 100
    y = ((x - 100) @ random.normal(size=5) + random.normal(0, 20, 300) > 0).astype(int)
    classifier = linear_model.LogisticRegression(max_iter=10_000).fit(x, y)
    distances = classifier.decision_function(x) / np.linalg.norm(classifier.coef_)
    few = np.flatnonzero((abs(distances) > 8) & (abs(distances) < 30))[:20]
    settings = {"sigma": 20.0, "n": 10_000, "alpha": 1e-4, **ANY}
    certificates = certify(classifier.predict_proba, x[few], **settings)
    assert [c.label for c in certificates] == classifier.predict(x[few]).tolist()
    radii = np.array([c.radius for c in certificates])
    assert len(few) == 20 and (radii <= abs(distances[few])).all()
    np.testing.assert_allclose(radii, abs(distances[few]), atol=0.1 * settings["sigma"])
    assert certify(classifier.predict, x[few], num_classes=2, **settings) == certificates


def test_a_callable_that_returns_labels_is_the_network_of_their_one_hot_vectors():
    class OneHot(nn.Module):
        def forward(self, x):
            return nn.functional.one_hot(x.argmax(dim=1), 4).float()

    x = np.random.default_rng(0).normal(size=(3, 4))
    for bound in ("clopper-pearson", "bernstein"):
        settings = QUICK | ANY | {"num_classes": 4, "bound": bound, "beta": 8.0}
        assert certify(lambda x: x.argmax(1), x, **settings) == certify(OneHot(), x, **settings)


def convolution():
    torch.manual_seed(0)
    layers = (nn.Conv1d(1, 4, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(2), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(8, 3)).eval()


def test_a_series_with_and_without_a_channel_has_the_same_certificates():
    series = torch.randn(3, 1, 40).clamp(-1, 1)
    settings = QUICK | {"value_range": (-1, 1)}
    flat = nn.Sequential(nn.Unflatten(1, (1, 40)), convolution())
    certificates = certify(convolution(), series, **settings)
    assert certify(flat, series[:, 0], **settings) == certificates
    assert certify(flat, series[:, 0].double().numpy(), **settings) == certificates


def test_grey_images_have_the_same_certificates_flat():
    torch.manual_seed(0)
    images, network = torch.rand(3, 1, 4, 5), nn.Sequential(nn.Flatten(), nn.Linear(20, 3))
    certificates = certify(network, images, exact=False, **QUICK)
    assert certify(network, images.flatten(1), exact=False, **QUICK) == certificates
    assert certify(network, images.flatten(1), **QUICK) == certificates


def test_coloured_images_have_the_same_truth_flat():
    distances = [0.4, -0.7]
    images = 0.5 + np.random.default_rng(0).uniform(-0.2, 0.2, (2, 3, 4, 4))
    images += (np.array(distances) / 48**0.5 + 0.5 - images.mean(axis=(1, 2, 3)))[
        :, None, None, None
    ]
    network = nn.Sequential(Shifted(), HalfSpace())
    settings = {"sigma": 0.5, "n": 10_000, "alpha": 1e-4, "exact": False}
    for inputs in (images, images.reshape(2, -1)):
        radii = [c.radius for c in certify(network, inputs, **settings)]
        assert (radii <= np.abs(distances)).all()
        np.testing.assert_allclose(radii, np.abs(distances), atol=0.05)


class Shifted(nn.Module):
    def forward(self, x):
        return x - 0.5


def test_certificates_do_not_depend_on_batch_threads_order_or_company():
    torch.manual_seed(0)
    series = 3 * torch.randn(4, 1, 40)
    settings = QUICK | ANY
    certificates = certify(convolution(), series, **settings)
    assert certify(convolution(), series, batch_size=300, **settings) == certificates
    some = certify(convolution(), series[[2, 0]], indices=[2, 0], **settings)
    assert some == [certificates[2], certificates[0]]
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert certify(convolution(), series, **settings) == certificates
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("ask", ASK)
def test_a_callable_is_called_in_the_thread_that_asked_with_a_batch_of_one_shape(ask):
    seen = set()

    def watched(x):
        seen.add((threading.current_thread(), x.shape, x.dtype.name))
        return half_space(x)

    ask(watched, np.ones((2, 3, 5)), sigma=0.5, n=1000, **ANY)
    assert seen == {(threading.current_thread(), (100, 3, 5), "float32")}


def test_a_callable_may_see_one_row_at_a_time():
    def sorted_rows(x):
        return half_space(np.sort(x, axis=0))

    inputs = at_distances([0.5, -0.5], (4,))
    expected = certify(half_space, inputs, sigma=0.5, n=300, **ANY)
    assert certify(sorted_rows, inputs, sigma=0.5, n=300, row_by_row=True, **ANY) == expected


# The class of the field


def test_smooth_is_certify_for_callables_and_other_inputs_and_probes_once(monkeypatch):
    series, probed = torch.randn(3, 1, 40), []
    check = probe._check_exchanges
    monkeypatch.setattr(
        probe, "_check_exchanges", lambda *a, **more: probed.append(1) or check(*a, **more)
    )
    network = convolution()

    def call(x):
        return network(torch.from_numpy(x))

    for model in (network, call):
        expected = [(c.label, c.radius) for c in certify(model, series, **QUICK, **ANY)]
        probed.clear()
        smooth = Smooth(model, 3, 0.5, **ANY)
        assert [smooth.certify(x, 50, 500, 0.001) for x in series] == expected
        assert len(probed) == (model is call)  # certify has probed the network before
    for label in range(3):
        smooth.base_classifier = partial(always, label)
        assert smooth.predict(series[0], 100, 0.001) == label


# refusal


@pytest.mark.parametrize(
    "function",
    [
        lambda x: half_space(x - x.mean(axis=0)),
        lambda x: half_space(np.sort(x, axis=0)),
        lambda x: half_space(x + np.random.default_rng().normal(size=x.shape)),
    ],
)
@pytest.mark.parametrize("inputs", [np.zeros((1, 4)), np.full((2, 4), 0.5), np.ones((1, 2, 3))])
@pytest.mark.parametrize("ask", ASK)
def test_a_callable_that_is_random_or_mixes_its_rows_is_refused(ask, inputs, function):
    with pytest.raises(Mistake, match=LINE):
        ask(function, inputs, sigma=0.5, n=100, **ANY)


@pytest.mark.parametrize("ask", ASK)
def test_inputs_and_classes_are_checked_by_every_function(ask):
    settings = {"sigma": 0.5, "n": 100}
    with pytest.raises(Mistake, match=r"^inputs must have values in \[0, 1\], got \[-1, 2\]; sc"):
        ask(half_space, np.array([[-1.0, 2.0]]), **settings)
    with pytest.raises(Mistake, match=r"^inputs must have values in \[-1, 1\], got \[-1, 2\]; sc"):
        ask(half_space, np.array([[-1.0, 2.0]]), value_range=(-1, 1), **settings)
    with pytest.raises(Mistake, match=r"^exact noise is for 8-bit images, of the shape "):
        ask(half_space, np.zeros((1, 2)), exact=True, **settings)
    with pytest.raises(Mistake, match=r"^labels must be integers from 0 to num_classes − 1, 1"):
        ask(lambda x: [2] * len(x), np.zeros((1, 2)), num_classes=2, **settings)
    for model in (half_space, HalfSpace()):
        line = "num_classes must be the network's number of outputs, 2, got 3"
        with pytest.raises(Mistake, match=f"^{line}$"):
            ask(model, np.zeros((1, 2)), num_classes=3, **settings)


def test_another_precision_is_refused_where_the_base_classifier_is_used_as_it_is():
    line = (
        r"^precision must be auto or fp32 for a callable or for inputs that are no images, got {}"
    )
    for model, x in ((half_space, torch.zeros(1, 4, 4)), (HalfSpace(), torch.zeros(4))):
        for precision in ("bf16", "half"):
            with pytest.raises(Mistake, match=line.format(precision)):
                Smooth(model, 2, 0.5, precision=precision).predict(x, 100, 0.001)


@pytest.mark.parametrize("ask", ASK)
def test_what_a_model_raises_reaches_the_caller_with_the_shape_that_it_was_given(ask):
    def broken(x):
        raise ConnectionError("no answer")

    class Broken(nn.Module):
        def forward(self, x):
            return broken(x)

    for model in (broken, Broken()):
        with pytest.raises(ConnectionError, match=r"(?s)no answer.*of the shape \(100, 3, 2\)"):
            ask(model, np.zeros((1, 3, 2)), sigma=0.5, n=100)
