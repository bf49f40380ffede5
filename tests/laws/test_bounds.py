"""A bound is what its record says, whatever its name: hard or soft, to all who use it."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from journals import HEADER
from torch import nn

from macer.audit import falsify as falsification
from macer.audit.verify import recompute
from macer.certification.journal import Contents, Record, open_journal, read_journal
from macer.certification.largest_radius import certify
from macer.certification.settings import check_settings
from macer.certification.target import Target, prepare
from macer.data.sets import Split
from macer.smoothing.bounds import BOUNDS
from macer.smoothing.tally import MOST_SOFT_SAMPLES
from macer.system.errors import AuditFailed

SIGMA, N = 0.25, 1000
SPLIT = Split(np.full((2, 1, 4, 4), 200, np.uint8), np.ones(2, np.int64))

# Names that say nothing, or the wrong thing; each with the bound that it stands for.
STRANGE = {
    "softest-bernstein": "clopper-pearson",
    "only-one": "runner-up",
    "clopper-pearson-votes": "hoeffding",
    "hard": "bernstein",
}


class Brightness(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        bright = self.gain * (x.flatten(1).mean(dim=1) - 0.5)
        return torch.stack([-bright, bright], dim=1)


@pytest.fixture(params=STRANGE)
def strange(request, monkeypatch) -> str:
    monkeypatch.setitem(BOUNDS, request.param, BOUNDS[STRANGE[request.param]])
    return request.param


def with_bound(header, bound):
    """The header with a bound that no journal's file may name."""
    changed = copy(header)
    object.__setattr__(changed, "bound", bound)
    return changed


def certificates(bound):
    images = torch.from_numpy(SPLIT.images)
    return certify(Brightness(), images, sigma=SIGMA, n=N, bound=bound)


def contents_of(bound, tmp_path) -> Contents:
    """A journal's contents with that bound in its header; the file has a known one."""
    settings = replace(HEADER, sigma=SIGMA, n=N)
    path = tmp_path / "certificates.journal"
    with open_journal(path, settings, range(2)) as journal:
        journal.append(Record(i, 1, c, 0.0) for i, c in enumerate(certificates(bound)))
    contents = read_journal(path)
    return replace(contents, header=with_bound(contents.header, bound))


def test_certificates_are_those_of_the_bound_it_stands_for(strange):
    assert certificates(strange) == certificates(STRANGE[strange])
    assert all(bool(c.squares) == BOUNDS[strange].soft for c in certificates(strange))


def test_only_a_soft_bound_limits_n_by_what_its_sums_can_hold(strange):
    settings = {"sigma": SIGMA, "n0": 100, "n": MOST_SOFT_SAMPLES + 1, "alpha": 0.001}
    if BOUNDS[strange].soft:
        with pytest.raises(Exception, match=f"^n must be at most 8388607 with the {strange} bound"):
            check_settings(bound=strange, **settings)
    else:
        check_settings(bound=strange, **settings)


def test_the_audit_recomputes_them_and_refuses_counts_of_the_other_sort(strange, tmp_path):
    contents = contents_of(strange, tmp_path)
    assert recompute(contents) == 2
    other = "clopper-pearson" if BOUNDS[strange].soft else "bernstein"
    wrong = replace(contents, header=with_bound(contents.header, other))
    with pytest.raises(AuditFailed, match=f"^image 0: its counts are not those of {other}$"):
        recompute(wrong)


def test_an_attack_judges_by_votes_where_the_bound_counts_votes(strange, tmp_path, monkeypatch):
    contents, judged = contents_of(strange, tmp_path), []
    judge = falsification.judge

    def spy(*arguments, soft, **more):
        judged.append(soft)
        return judge(*arguments, soft=soft, **more)

    monkeypatch.setattr(falsification, "judge", spy)
    search = falsification.Search(scale=0.5, restarts=1, steps=1, m=1, n=100, seed=0)
    target = Target(Brightness(), "bright", "bright", SIGMA, (1, 4, 4), 2, "")
    records = list(contents.records.values())
    model = prepare(target, precision="fp32", row_by_row=False, device=torch.device("cpu"))
    trials = list(falsification.falsify(contents, records, model, SPLIT, search))
    assert judged == [BOUNDS[strange].soft] * 2
    assert all(trial.p_a <= 1 for trial in trials)
