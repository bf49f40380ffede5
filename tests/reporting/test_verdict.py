"""A verdict states the exact lower bound at a radius that the results did not choose."""

import re
from dataclasses import replace

import numpy as np
import pytest
from examples import log_of, published_logs, random_log, with_classes
from scipy.stats import beta

from macer.reporting.gate import Build, accuracy
from macer.reporting.logs import CertificateLog
from macer.reporting.verdict import (
    ASKED_FOR,
    CONFIDENCE,
    chosen_radius,
    class_verdicts,
    share_text,
    verdicts,
)
from macer.system.errors import Mistake

SETTINGS = {"sigma": 0.5, "n": 1000, "alpha": 0.001}


def known(log: CertificateLog) -> CertificateLog:
    return replace(log, **SETTINGS)


# reference


@pytest.mark.medium
def test_the_share_is_clopper_and_pearsons_lower_bound_less_false_certificates() -> None:
    log = known(published_logs()[1])
    [verdict] = verdicts([log])
    right = sum(
        p == y and r >= 0.5 for p, y, r in zip(log.predict, log.label, log.radius, strict=True)
    )
    q = beta.ppf(0.05, right, len(log.idx) - right + 1)
    assert verdict.certified == right
    assert verdict.lower == pytest.approx((q - 0.001) / (1 - 0.001), rel=1e-12)


# law


def test_the_share_is_the_one_that_the_gate_decides_by() -> None:
    for seed in range(5):
        log = known(random_log(seed))
        [verdict] = verdicts([log], 0.25)
        build = Build(log, 0.25, alpha=0.001, level=1 - CONFIDENCE)
        assert verdict.lower == accuracy(build, 0.1).lower


def test_the_sentence_states_the_bound_rounded_down_and_never_the_estimate() -> None:
    for seed in range(20):
        [verdict] = verdicts([known(random_log(seed))], 0.1)
        [told] = re.findall(r"at least ([0-9.]+)% of images", verdict.sentence)
        assert verdict.lower is not None
        assert float(told) <= 100 * verdict.lower < float(told) + 0.1
        assert float(told) / 100 < verdict.certified / verdict.images
        assert "below 0.1." in verdict.sentence and "With 95% confidence" in verdict.sentence


def test_abstentions_and_wrong_answers_are_not_certified_whatever_their_radius() -> None:
    log = known(log_of([0, 0, 1, -1], [1.0, 0.4, 1.0, 1.0]))
    [verdict] = verdicts([log])
    assert (verdict.certified, verdict.correct, verdict.wrong, verdict.abstained) == (1, 2, 1, 1)


def test_the_radius_does_not_depend_on_the_results() -> None:
    logs = [known(random_log(seed)) for seed in range(3)]
    assert {chosen_radius([log], None) for log in logs} == {
        (0.5, "the noise level σ, set before anything was certified")
    }
    others = [replace(logs[0], sigma=0.25), logs[1]]
    assert chosen_radius(others, None)[0] == 0.25
    assert [verdict.radius for verdict in verdicts(others)] == [0.25, 0.25]
    assert chosen_radius([random_log(0)], None)[0] == 0.5
    assert chosen_radius(logs, 0.3) == (0.3, ASKED_FOR)


def test_every_class_is_there_and_one_that_is_given_up_says_so() -> None:
    label = np.arange(200) % 4
    log = replace(known(random_log(0)), classes=5, class_names=("a", "b", "c", "d", "e"))
    log = with_classes(log, label, np.where(label == 2, 1, label))
    classes = class_verdicts(log, 0.1)
    assert [one.name for one in classes] == ["a", "b", "c", "d", "e"]
    assert [one.given_up for one in classes] == [False, False, True, False, False]
    assert (classes[2].certified, classes[2].lower, classes[4].images) == (0, 0.0, 0)
    assert sum(one.certified for one in classes) == verdicts([log], 0.1)[0].certified


def test_a_sentence_does_not_leave_out_what_limits_it() -> None:
    log = known(random_log(0, 124))
    for changed, words in (
        (replace(log, asked=np.arange(180)), "; not finished: 124 of 180 images."),
        (replace(log, split="train"), "; of training images that were held out."),
        (replace(log, noise="ordinary"), "below 0.1, in real arithmetic."),
    ):
        assert verdicts([changed], 0.1)[0].sentence.endswith(words)


# known value


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"alpha": None}, "the log does not record the level α"),
        ({"level": "chosen"}, "the level α was chosen after the samples were drawn"),
    ],
)
def test_without_a_level_nothing_follows(changed: dict[str, None], words: str) -> None:
    log = replace(known(random_log(0)), **changed)
    [verdict] = verdicts([log])
    assert verdict.lower is None and words in verdict.sentence and "%" not in verdict.sentence
    assert all(one.lower is None for one in class_verdicts(log, 0.5))


def test_a_bound_of_0_is_no_robustness() -> None:
    [verdict] = verdicts([known(log_of([1, -1], [1.0, 0.0]))])
    assert verdict.lower == 0
    assert verdict.sentence.startswith("These certificates show no robustness at ℓ₂ 0.5")


def test_a_bound_that_rounds_to_0_is_hardly_any_robustness() -> None:
    one_of_500 = known(log_of([0] + [1] * 499, [1.0] * 500))
    [verdict] = verdicts([replace(one_of_500, alpha=1e-9)])
    assert verdict.lower is not None and 0 < verdict.lower < 0.001
    assert verdict.sentence == (
        "These certificates show hardly any robustness at ℓ₂ 0.5: the lower bound is below 0.1%."
    )
    [verdict] = verdicts([replace(known(log_of([0], [1.0])), alpha=1e-9)])
    assert verdict.sentence.startswith("With 95% confidence, at least 4.9% of images like these ")


def test_a_share_is_rounded_down() -> None:
    assert [share_text(share) for share in (0.5439, 0.9999, 0.0)] == ["54.3%", "99.9%", "0.0%"]


def test_a_radius_is_stated_in_all_its_digits() -> None:
    [verdict] = verdicts([known(random_log(0))], 0.1234567)
    assert "below 0.1234567." in verdict.sentence


# refusal


def test_a_radius_must_be_a_length() -> None:
    with pytest.raises(Mistake, match="radius must be a number ≥ 0, got -1"):
        verdicts([random_log(0)], -1)
