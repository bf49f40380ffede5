import math
from dataclasses import replace

import numpy as np
import pytest
from half_space import SIGMA, record_of, votes
from scipy.stats import beta, binomtest, norm

from macer.audit import judge as judging
from macer.audit.judge import LEVEL, judge

# reference


@pytest.mark.parametrize("own", [0, 1, 40, 500, 980, 1000])
def test_the_upper_bound_of_votes_is_clopper_and_pearsons(own):
    trial = judge(record_of(), votes(1000 - own, own), 0.1, sigma=SIGMA, n=1000, soft=False)
    expected = beta.ppf(1 - LEVEL, own + 1, 1000 - own) if own < 1000 else 1.0
    assert trial.p_a == own / 1000
    assert trial.p_a_upper == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("own", "rival"), [(0, 20), (0, 21), (440, 560), (420, 580), (21, 0)])
def test_a_flip_of_votes_is_what_predict_returns(own, rival):
    counts = votes(3, own, rival)
    trial = judge(record_of(), counts, 0.1, sigma=SIGMA, n=sum(counts.tolist()), soft=False)
    assert trial.flipped == (rival > own and binomtest(rival, own + rival).pvalue <= LEVEL)


@pytest.mark.parametrize(("rival", "flipped"), [(2 * 10**9, True), (10**9 + 9, False)])
def test_a_flip_is_told_in_more_votes_than_an_int32_holds(rival, flipped):
    counts = votes(0, 10**9, rival)
    trial = judge(record_of(), counts, 0.1, sigma=SIGMA, n=3 * 10**9, soft=False)
    assert trial.flipped == flipped


@pytest.mark.parametrize("mean", [0.0, 0.3, 0.9])
def test_the_upper_bound_of_soft_outputs_is_hoeffdings(mean):
    """Each output may have been rounded down by 2⁻²⁰."""
    total = int(mean * 1000 * 2**20)
    trial = judge(record_of(), votes(0, total), 0.1, sigma=SIGMA, n=1000, soft=True)
    assert trial.p_a == total / 1000 / 2**20
    width = math.sqrt(math.log(1 / LEVEL) / 2000)
    assert trial.p_a_upper == pytest.approx(min(mean + width, 1) + 2**-20, abs=2e-9)


@pytest.mark.parametrize("beside", [-500, 500])
def test_a_flip_of_soft_outputs_is_a_lead_beyond_hoeffdings_bound(beside):
    """z_B − z_A lies in [−1, 1]; B is the best of three; roundings count against it."""
    lead = math.ceil(math.sqrt(2 * math.log(3 / LEVEL) / 1000) * 1000 * 2**20)
    totals = votes(0, 2**26, 2**26 + 1000 + lead + beside, 5)
    trial = judge(record_of(), totals, 0.1, sigma=SIGMA, n=1000, soft=True)
    assert trial.flipped == (beside > 0)


def test_what_a_certificate_demands_is_its_bound_moved_by_the_distance():
    record = record_of(radius=0.3, p_a=0.9)
    for distance in (0.0, 0.1, 0.3, 0.7):
        trial = judge(record, votes(50, 50), distance, sigma=SIGMA, n=100, soft=False)
        assert trial.demanded == pytest.approx(norm.cdf(norm.ppf(0.9) - distance / SIGMA))


# law


def test_a_point_on_the_sphere_is_inside_and_a_bound_that_is_met_is_not_violated():
    on, beyond = (
        judge(record_of(radius=0.5), votes(1000, 0), d, sigma=SIGMA, n=1000, soft=False)
        for d in (0.5, np.nextafter(0.5, 1))
    )
    assert on.inside and on.falsifies and not beyond.inside
    met = replace(beyond, flipped=False, demanded=beyond.p_a_upper)
    assert not met.violated and not met.falsifies


def test_twenty_one_votes_are_the_fewest_that_confirm():
    for n, confirmed in ((20, False), (21, True)):
        trial = judge(record_of(), votes(n, 0), 0.1, sigma=SIGMA, n=n, soft=False)
        assert trial.flipped == confirmed


def test_a_judgement_rarely_condemns_falsely():
    """At p_A(x′) exactly as demanded, the bound of 200,000 judgements at level 10⁻³ covers."""
    random = np.random.default_rng(0)
    counts = random.binomial(500, 0.55, 200_000)
    seen, times = np.unique(counts, return_counts=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "LEVEL", 1e-3)
        record = record_of(radius=0.1, p_a=0.55)
        false = sum(
            int(count)
            for own, count in zip(seen.tolist(), times, strict=True)
            if judge(record, votes(500 - own, own), 0.0, sigma=SIGMA, n=500, soft=False).violated
        )
    assert 20 < false <= 200 + 4 * math.sqrt(200)
