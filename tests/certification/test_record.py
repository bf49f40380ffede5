import pytest
from journals import ENTRIES, record_of

from macer.certification.journal import journal_line, read_journal
from macer.system.errors import Mistake


@pytest.mark.parametrize(
    "change",
    [
        {"label": -2}, {"label": 3}, {"label": "0"}, {"radius": float("inf")}, {"radius": -1.0},
        {"radius": 1.7e308}, {"radius": None}, {"selected": 3}, {"selected": -1}, {"p_a": 1.5},
        {"p_a": float("nan")}, {"selection": []}, {"selection": [1, 2]}, {"selection": "abc"},
        {"estimation": [1.5, 2, 3]}, {"estimation": [-1, 2, 3]}, {"estimation": [2**70, 2, 3]},
        {"squares": [1]}, {"drawn": -1}, {"drawn": 1e3}, {"drawn": 10**20}, {"other": 1},
        {"p_b": 1.5}, {"p_b": float("nan")}, {"p_b": "0.1"}, {"p_b": None}, {"p_b": -0.1},
    ],
)  # fmt: skip
def test_a_forged_certificate_is_refused_in_one_line(tmp_path, change):
    path = tmp_path / "certificates.journal"
    first = journal_line(b"", ENTRIES)
    content = record_of(0).to_json() | {"line": 1}
    content = {"line": 1, **content}
    content["certificate"] = content["certificate"] | change
    path.write_bytes(first + journal_line(first.partition(b" ")[0], content))
    with pytest.raises(Mistake, match="must hold records that this macer knows: image 0: "):
        read_journal(path).records[0]
