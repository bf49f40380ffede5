import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import HEADER, rewrite
from scipy.stats import beta, binomtest, norm
from torch import nn

from macer.audit.falsify import (
    LEVEL,
    Search,
    check,
    chosen_records,
    falsify,
    findings,
    judge,
    summary,
    to_grid,
)
from macer.certification.journal import open_journal, read_journal
from macer.certification.largest_radius import ABSTAIN, certify
from macer.certification.record import Record
from macer.certification.target import Target, prepare
from macer.cli.app import main
from macer.data.sets import Split
from macer.errors import AuditFailed, Mistake

SIGMA = 0.25
SHAPE = (1, 8, 8)
DISTANCES = [0.2, 0.3, 0.4, 0.5]
SEARCH = Search(scale=0.999, restarts=2, steps=10, m=8, n=2000, seed=0)


class HalfSpace(nn.Module):
    """Class 1 where w·v > w·½: smoothed, p₁(x) = Φ(distance / σ) for every x."""

    def __init__(self):
        super().__init__()
        w = torch.from_numpy(np.random.default_rng(0).standard_normal((64, 1)).astype(np.float32))
        self.w = nn.Parameter(w / w.norm())

    def forward(self, v):
        margin = (v - 0.5).flatten(1) @ self.w
        return torch.cat([-5 * margin, 5 * margin], dim=1)


def pixels() -> np.ndarray:
    """Grey 8-bit images, at about these distances from the border: the box is out of the way."""
    w = HalfSpace().w.detach().numpy().reshape(SHAPE)
    return np.stack([np.round(255 * (0.5 + d * w)) for d in DISTANCES]).astype(np.uint8)


@pytest.fixture(scope="module")
def target():
    return Target(HalfSpace(), "half", "half", SIGMA, SHAPE, 2, "")


SPLIT = Split(pixels(), np.ones(len(DISTANCES), np.int64))


@pytest.fixture
def journal(tmp_path, target):
    """Writes a journal of the half-space's certificates, changed as a test wants."""

    def write(change=lambda certificate: certificate, *, bound="clopper-pearson", beta=1.0):
        certificates = certify(
            target.model,
            torch.from_numpy(SPLIT.images),
            sigma=SIGMA,
            n=2000,
            bound=bound,
            beta=beta,
        )
        header = replace(HEADER, sigma=SIGMA, n=2000, bound=bound, beta=beta)
        path = tmp_path / "certificates.journal"
        with open_journal(path, header) as writer:
            writer.append(Record(i, 1, change(c), 0.0) for i, c in enumerate(certificates))
        return read_journal(path)

    return write


def inflated(factor):
    """A certificate whose radius is this many times the distance, and whose bound fits it."""

    def change(certificate):
        votes = certificate.estimation
        radius = factor * SIGMA * norm.ppf(votes[1] / sum(votes))
        return replace(certificate, radius=radius, p_a=norm.cdf(radius / SIGMA))

    return change


def attacked(contents, target, *, images=100, **changes):
    search = replace(SEARCH, **changes)
    records = chosen_records(contents, images)
    device = torch.device("cpu")
    header = contents.header
    model = prepare(target, precision=header.precision, row_by_row=header.row_by_row, device=device)
    return list(falsify(contents, records, model, SPLIT, search))


def record_of(*, label=1, radius=0.5, p_a=None, idx=0):
    """A record with a made-up certificate."""
    [certificate] = certify(HalfSpace(), torch.from_numpy(SPLIT.images[:1]), sigma=SIGMA, n=100)
    p_a = norm.cdf(radius / SIGMA) if p_a is None else p_a
    return Record(idx, label, replace(certificate, label=label, radius=radius, p_a=p_a), 0.0)


def votes(*counts):
    return torch.tensor(counts, dtype=torch.int64)


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


def test_an_inflated_bound_is_noticed_where_no_label_flips(journal, target):
    contents = journal(inflated(1.5))
    trials = attacked(contents, target, restarts=1, scale=0.5)
    assert not any(trial.flipped for trial in trials)
    assert all(trial.violated and trial.falsifies for trial in trials)


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


def test_the_attack_on_a_half_space_loses_next_to_nothing(journal, target):
    """σΦ⁻¹(p₁) falls by the distance gone, up to the sampling and the 8-bit grid."""
    trials = attacked(journal(), target, scale=1.3, n=20_000, restarts=1)
    gone = np.array([trial.distance for trial in trials])
    assert (gone > 0.99 * 1.3 * np.array([trial.radius for trial in trials])).all()
    after = SIGMA * norm.ppf([trial.p_a for trial in trials])
    assert np.array(DISTANCES) - after == pytest.approx(gone, abs=0.01)


@pytest.mark.parametrize("bound", ["hoeffding", "bernstein"])
def test_soft_certificates_are_judged_softly(journal, target, bound):
    contents = journal(bound=bound, beta=3.0)
    assert not any(trial.falsifies for trial in attacked(contents, target))
    for trial in attacked(contents, target, scale=1e-9):  # the image itself, at the same β
        certified = contents.records[trial.idx].certificate.estimation[1] / 2**20 / 2000
        assert trial.distance == 0 and trial.p_a == pytest.approx(certified, abs=0.03)
    assert all(trial.flipped for trial in attacked(contents, target, scale=4.0, restarts=1))
    (Path(contents.records.path)).unlink()

    def forged(certificate):
        return replace(certificate, radius=2.2 * certificate.radius, p_a=0.9999)

    trials = attacked(journal(forged, bound=bound, beta=3.0), target, restarts=1)
    assert all(trial.violated for trial in trials)


@given(
    st.integers(0, 2**32), st.floats(1e-3, 300), st.sampled_from([0.0, 0.7, 0.99])
)  # scale in levels, share of zeros
@settings(max_examples=100, deadline=None)
def test_the_grid_is_never_farther_than_what_is_rounded_to_it(seed, levels, zeros):
    random = np.random.default_rng(seed)
    x = torch.from_numpy(random.integers(0, 256, (3, *SHAPE)).astype(np.uint8))
    delta = torch.from_numpy(
        levels / 255 * random.standard_normal((3, *SHAPE)) * (random.random((3, *SHAPE)) > zeros)
    )
    delta = (x / 255.0 + delta).clamp(0, 1) - x / 255.0
    found = to_grid(x, delta)
    assert found.dtype == torch.uint8
    squares = ((found.int() - x.int()) ** 2).flatten(1).sum(dim=1)
    assert (squares <= (255 * delta).flatten(1).norm(dim=1) ** 2).all()


def test_the_grid_loses_little_of_a_perturbation():
    random = np.random.default_rng(0)
    x = torch.full((50, 1, 28, 28), 128, dtype=torch.uint8)
    direction = torch.from_numpy(random.standard_normal(x.shape))
    direction /= direction.flatten(1).norm(dim=1)[:, None, None, None]
    for length, least in ((1.0, 0.999), (0.25, 0.99), (0.1, 0.9), (0.02, 0.4)):
        moved = (to_grid(x, length * direction).double() - 128) / 255
        along = (moved * direction).flatten(1).sum(dim=1)
        assert (along > least * length).all(), length


def test_a_perturbation_on_the_grid_stays_and_none_stays_none():
    x = torch.full((2, *SHAPE), 100, dtype=torch.uint8)
    delta = torch.zeros(2, *SHAPE, dtype=torch.float64)
    delta[0, 0, :3, :3] = 7 / 255 * (1 + 1e-12)
    found = to_grid(x, delta)
    assert torch.equal(found.double(), x + (255 * delta).round())


def test_the_trials_are_a_function_of_the_seed(journal, target):
    contents = journal()
    one, same, other = (attacked(contents, target, seed=seed) for seed in (0, 0, 1))
    assert one == same
    assert [t.p_a for t in one] != [t.p_a for t in other]


def test_restarts_begin_elsewhere_and_are_judged_by_other_noise(journal, target, monkeypatch):
    starts, names = [], []
    from macer.audit import falsify as falsification

    pgd, sample = falsification.pgd, falsification.sample_under_noise

    def spy_on_pgd(*arguments, start, **more):
        starts.append(start)
        return pgd(*arguments, start=start, **more)

    def spy_on_sample(*arguments, indices, purpose, **more):
        names.append((purpose.name, tuple(indices)))
        return sample(*arguments, indices=indices, purpose=purpose, **more)

    monkeypatch.setattr(falsification, "pgd", spy_on_pgd)
    monkeypatch.setattr(falsification, "sample_under_noise", spy_on_sample)
    contents = journal()
    radii = torch.tensor([contents.records[i].certificate.radius for i in range(4)])
    attacked(contents, target, restarts=3)
    assert starts[0] is None and not torch.equal(starts[1], starts[2])
    images = torch.from_numpy(SPLIT.images).float() / 255
    for start in starts[1:]:
        assert (start - images).flatten(1).norm(dim=1) == pytest.approx(0.999 * radii, rel=1e-4)
        directions = (start - images).flatten(1)
        assert len({tuple((d / d.norm()).round(decimals=3).tolist()) for d in directions}) == 4
    assert len(set(names)) == 3
    assert not set(names[0][1]) & set(names[1][1]) and {name for name, _ in names} == {"JUDGEMENT"}


def test_the_first_certified_images_are_chosen(journal):
    contents = journal(
        lambda c: replace(c, label=ABSTAIN, radius=0.0) if c.radius < 0.2 else c  # the nearest
    )
    assert [record.idx for record in chosen_records(contents, 2)] == [1, 2]
    assert [record.idx for record in chosen_records(contents, 9)] == [1, 2, 3]


def test_images_are_chosen_in_their_order_and_only_where_there_is_a_ball_to_attack(journal):
    contents = journal()
    some = {3: record_of(idx=3), 0: record_of(idx=0, radius=0.0), 1: record_of(idx=1)}
    chosen = chosen_records(replace(contents, records=some), 5)
    assert [record.idx for record in chosen] == [1, 3]


def test_a_point_on_the_sphere_is_inside_and_a_bound_that_is_met_is_not_violated():
    on, beyond = (
        judge(record_of(radius=0.5), votes(1000, 0), d, sigma=SIGMA, n=1000, soft=False)
        for d in (0.5, np.nextafter(0.5, 1))
    )
    assert on.inside and on.falsifies and not beyond.inside
    met = replace(beyond, flipped=False, demanded=beyond.p_a_upper)
    assert not met.violated and not met.falsifies


@pytest.mark.parametrize(("exact", "seen"), [(True, torch.uint8), (False, torch.float32)])
def test_what_judges_is_asked_about_the_images_attacked(journal, target, monkeypatch, exact, seen):
    """By the noise of the certificates, and by the seed that the user gave."""
    from macer.audit import falsify as falsification

    asked, sample = [], falsification.sample_under_noise

    def spy(model, images, n, **more):
        asked.append((images, n, more["seed"], more["sigma"], more["indices"]))
        return sample(model, images, n, **more)

    monkeypatch.setattr(falsification, "sample_under_noise", spy)
    contents = journal(lambda c: replace(c, label=ABSTAIN, radius=0.0) if c.radius < 0.2 else c)
    contents = replace(contents, header=replace(contents.header, exact=exact))
    attacked(contents, target, scale=1e-9, restarts=1, seed=7, n=1234)
    [(images, n, seed, sigma, indices)] = asked
    assert (n, seed, sigma, indices) == (1234, 7, SIGMA, [1, 2, 3])
    levels = images if exact else images * 255
    assert images.dtype == seen
    assert torch.equal(levels.round().to(torch.uint8), torch.from_numpy(SPLIT.images[1:]))


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


def test_a_judgement_rarely_condemns_falsely():
    """At p_A(x′) exactly as demanded, the bound of 200,000 judgements at level 10⁻³ covers."""
    from macer.audit import falsify as falsification

    random = np.random.default_rng(0)
    counts = random.binomial(500, 0.55, 200_000)
    seen, times = np.unique(counts, return_counts=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(falsification, "LEVEL", 1e-3)
        record = record_of(radius=0.1, p_a=0.55)
        false = sum(
            int(count)
            for own, count in zip(seen.tolist(), times, strict=True)
            if judge(record, votes(500 - own, own), 0.0, sigma=SIGMA, n=500, soft=False).violated
        )
    assert 20 < false <= 200 + 4 * math.sqrt(200)


# the command

# The nearest mean of a class, from the data.
NET = """
import torch
from torch import nn
from macer.data.sets import load

def net(num_classes, channels):
    split = load("mnist-sample", "train")
    images, labels = torch.from_numpy(split.images) / 255, torch.from_numpy(split.labels)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, num_classes))
    means = torch.stack([images[labels == c].mean(dim=0).flatten() for c in range(num_classes)])
    model[1].weight.data = 2 * means
    model[1].bias.data = -(means**2).sum(dim=1)
    return model
"""
ATTACK = ["attack", "run", "--target", "attackednet:net", "--device", "cpu", "--n", "500"]
ATTACK += ["--restarts", "2", "--steps", "5", "--m", "4"]


@pytest.fixture(scope="module")
def certified(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("attack")
    (folder / "attackednet.py").write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        command = "certify attackednet:net --dataset mnist-sample --sigma 0.5 --n 500 --stop 8"
        assert main([*command.split(), "--out", "run", "--device", "cpu"]) == 0
    return folder


@pytest.fixture
def desk(certified, tmp_path, monkeypatch) -> Path:
    shutil.copytree(certified, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_honest_certificates_pass(desk, capsys):
    assert main(ATTACK) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 5 and err == ""
    assert re.match(r"attacked \d certified images, \d…\d, within 0.999 of their radii: ", out)
    assert "0 inside the radius, 0 beyond it" in out


def test_forged_certificates_fail_with_code_1(desk, capsys):
    def forge(record):
        certificate = replace(record.certificate, radius=4.0, p_a=norm.cdf(8.0))
        return replace(record, certificate=replace(certificate, label=certificate.selected))

    rewrite(desk / "run", forge)
    assert main([*ATTACK, "--images", "3"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("attacked 3 certified images, 0…2, ")
    assert re.match(r"macer: not verified: 3 of 3 certificates false, α is 0.001 for each; ", err)


def test_other_weights_are_not_attacked(desk, capsys):
    (desk / "othernet.py").write_text(NET.replace("2 * means", "means"))
    assert main(["attack", "run", "--target", "othernet:net"]) == 1
    assert "not verified: weights_sha256 is " in capsys.readouterr().err


def test_abstentions_only_are_a_mistake(desk, capsys):
    def abstain(record):
        return replace(record, certificate=replace(record.certificate, label=ABSTAIN, radius=0.0))

    rewrite(desk / "run", abstain)
    assert main(ATTACK) == 2
    assert "no certificate to attack: the journal holds abstentions only" in capsys.readouterr().err


# refusal


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"scale": 0.0}, "scale must be > 0, got 0.0"),
        ({"scale": math.nan}, "scale must be > 0, got nan"),
        ({"restarts": 0}, "restarts must be at least 1, got 0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"m": 0}, "m must be at least 1, got 0"),
        ({"n": 20}, "n must be at least 21 to confirm anything at level 1e-06, got 20"),
        ({"seed": -1}, "seed must be in [0, 2⁶³), got -1"),
        ({"seed": 2**63}, "seed must be in [0, 2⁶³), got 9223372036854775808"),
        ({"scale": math.inf}, "scale must be > 0, got inf"),
    ],
)
def test_a_mistake_is_told(change, line):
    with pytest.raises(Mistake) as mistake:
        replace(SEARCH, **change)
    assert str(mistake.value) == line


def test_the_least_search_is_taken():
    replace(SEARCH, restarts=1, steps=1, m=1, n=21, seed=2**63 - 1)


def test_twenty_one_votes_are_the_fewest_that_confirm():
    for n, confirmed in ((20, False), (21, True)):
        trial = judge(record_of(), votes(n, 0), 0.1, sigma=SIGMA, n=n, soft=False)
        assert trial.flipped == confirmed
