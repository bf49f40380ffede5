from dataclasses import replace

import pytest
from half_space import DISTANCES, SEARCH, attacked, inflated

from macer.audit.findings import check, findings, summary
from macer.certification.certificate import ABSTAIN
from macer.system.errors import AuditFailed

# law


@pytest.mark.medium
def test_true_certificates_are_not_falsified(journal, target):
    """The certificates of half-spaces are tight: there is nothing better to attack."""
    contents = journal()
    for scale in (0.5, 0.999, 2.0):
        trials = attacked(contents, target, scale=scale)
        assert len(trials) == 2 * len(DISTANCES)
        assert not any(trial.falsifies for trial in trials)
        check(trials, contents)


def test_inflated_certificates_are_falsified_at_once(journal, target):
    contents = journal(inflated(1.5))
    trials = attacked(contents, target, restarts=1)
    assert all(t.inside and t.violated and t.flipped and t.falsifies for t in trials)
    line = r"4 of 4 certificates false, α is 0.001 for each; image 0, at distance 0\.\d{4} of "
    with pytest.raises(AuditFailed, match=line + r"radius .*: class 1 has at most 0\.\d{4}, its "):
        check(trials, contents)


def test_a_radius_that_its_bound_does_not_support_is_falsified_by_flips(journal, target):
    def change(certificate):
        return replace(certificate, radius=1.5 * inflated(1.0)(certificate).radius)

    contents = journal(change)
    trials = attacked(contents, target, restarts=1)
    assert all(trial.flipped and trial.inside and not trial.violated for trial in trials)
    with pytest.raises(AuditFailed, match="the label is not class 1"):
        check(trials, contents)


def test_twice_the_radius_flips_and_violates_nothing(journal, target):
    contents = journal()
    trials = attacked(contents, target, scale=2.0)
    assert all(trial.flipped and not trial.inside and not trial.violated for trial in trials)
    lines = summary(findings(trials, contents), replace(SEARCH, scale=2.0))
    assert (
        "label confirmed to be another: 0 inside the radius, 4 beyond it, where nothing"
        in (lines[1])
    )


def test_the_summary_tells_what_was_found(journal, target):
    contents = journal(lambda c: replace(c, label=ABSTAIN, radius=0.0) if c.radius < 0.2 else c)
    trials = attacked(contents, target, images=2)
    lines = summary(findings(trials, contents), SEARCH)
    assert lines[:3] == [
        "attacked 2 certified images, 1…2, within 0.999 of their radii: 2 restarts, 10 steps, "
        "m = 8",
        "label confirmed to be another: 0 inside the radius, 0 beyond it, where nothing is "
        "certified",
        "p_A(x′) confirmed to be below Φ(Φ⁻¹(p_A) − ‖δ‖/σ): 0",
    ]
    lowest = min(trials, key=lambda trial: trial.p_a_upper - trial.demanded)
    assert (
        f"lowest margin {lowest.p_a_upper - lowest.demanded:+.4f}: image {lowest.idx}, "
        in (lines[3])
    )
    assert lines[4] == (
        "each confirmed by n = 2000 at level 1e-06; at α = 0.001, up to 0.003 false certificates "
        "are expected in the 3 images up to 2"
    )


def test_the_lowest_margin_is_that_to_what_each_certificate_demands(journal, target):
    """A point of low probability may be one of which little is demanded."""
    contents = journal()
    first, second, *_ = attacked(contents, target, restarts=1)
    low = replace(first, p_a_upper=0.4, demanded=0.1)
    near = replace(second, p_a_upper=0.9, demanded=0.89)
    lines = summary(findings([low, near], contents), SEARCH)
    assert f"lowest margin +0.0100: image {near.idx}, " in lines[3]
