import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from half_space import DISTANCES, SEARCH, SIGMA, SPLIT, attacked, inflated, record_of
from journals import rewrite
from scipy.stats import norm

from macer.audit import falsify as falsification
from macer.audit.falsify import chosen_records
from macer.certification.certificate import ABSTAIN
from macer.cli.app import main
from macer.smoothing.sampling import Sampler
from macer.system.errors import Mistake

# law


@pytest.mark.medium
def test_an_inflated_bound_is_noticed_where_no_label_flips(journal, target):
    contents = journal(inflated(1.5))
    trials = attacked(contents, target, restarts=1, scale=0.5)
    assert not any(trial.flipped for trial in trials)
    assert all(trial.violated and trial.falsifies for trial in trials)


@pytest.mark.medium
def test_the_attack_on_a_half_space_loses_next_to_nothing(journal, target):
    """σΦ⁻¹(p₁) falls by the distance gone, up to the sampling and the 8-bit grid."""
    trials = attacked(journal(), target, scale=1.3, n=20_000, restarts=1)
    gone = np.array([trial.distance for trial in trials])
    assert (gone > 0.99 * 1.3 * np.array([trial.radius for trial in trials])).all()
    after = SIGMA * norm.ppf([trial.p_a for trial in trials])
    assert np.array(DISTANCES) - after == pytest.approx(gone, abs=0.01)


def test_certificates_by_the_runner_up_bound_are_judged_by_votes(journal, target):
    contents = journal(bound="runner-up")
    assert all(record.certificate.p_b is not None for record in contents.records.values())
    assert not any(trial.falsifies for trial in attacked(contents, target))
    (Path(contents.records.path)).unlink()
    forged = attacked(journal(inflated(1.5), bound="runner-up"), target, restarts=1)
    assert all(trial.falsifies for trial in forged)


@pytest.mark.medium
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


@pytest.mark.medium
def test_the_trials_are_a_function_of_the_seed(journal, target):
    contents = journal()
    one, same, other = (attacked(contents, target, seed=seed) for seed in (0, 0, 1))
    assert one == same
    assert [t.p_a for t in one] != [t.p_a for t in other]


def test_restarts_begin_elsewhere_and_are_judged_by_other_noise(journal, target, monkeypatch):
    starts, names = [], []
    pgd, draw = falsification.pgd_on_pixels, Sampler.draw

    def spy_on_pgd(*arguments, start, **more):
        starts.append(start)
        return pgd(*arguments, start=start, **more)

    def spy_on_draw(sampler, num, purpose):
        names.append((purpose.name, tuple(sampler.indices)))
        return draw(sampler, num, purpose)

    contents = journal()
    monkeypatch.setattr(falsification, "pgd_on_pixels", spy_on_pgd)
    monkeypatch.setattr(Sampler, "draw", spy_on_draw)
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


@pytest.mark.parametrize(("exact", "seen"), [(True, torch.uint8), (False, torch.float32)])
def test_what_judges_is_asked_about_the_images_attacked(journal, target, monkeypatch, exact, seen):
    """By the noise of the certificates, and by the seed that the user gave."""
    asked, draw = [], Sampler.draw

    def spy(sampler, num, purpose):
        asked.append((sampler.images, num, sampler.seed, sampler.sigma, sampler.indices))
        return draw(sampler, num, purpose)

    contents = journal(lambda c: replace(c, label=ABSTAIN, radius=0.0) if c.radius < 0.2 else c)
    contents = replace(contents, header=replace(contents.header, exact=exact))
    monkeypatch.setattr(Sampler, "draw", spy)
    attacked(contents, target, scale=1e-9, restarts=1, seed=7, n=1234)
    [(images, n, seed, sigma, indices)] = asked
    assert (n, seed, sigma, indices) == (1234, 7, SIGMA, [1, 2, 3])
    levels = images if exact else images * 255
    assert images.dtype == seen
    assert torch.equal(levels.round().to(torch.uint8), torch.from_numpy(SPLIT.images[1:]))


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
