"""The seeded bugs can be applied; that each is noticed is for `make mutants`."""

import ast
import subprocess
import sys

import mutation
import pytest
from mutants import MUTANTS
from mutation import NO_END, NOTICED, ROOT, SURVIVES, Mutant
from processes import surroundings

import macer


def test_every_seeded_bug_has_its_place():
    for name, mutant in MUTANTS.items():
        text = (ROOT / "src" / "macer" / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.right) == 1, name
        assert mutant.right != mutant.wrong, name
        ast.parse(text.replace(mutant.right, mutant.wrong), name)  # else no test could run
        for test in mutant.tests.split():
            file, _, law = test.partition("::")
            text = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert f"def {law}(" in text if law else text, name
            assert not mutant.slow or "pytest.mark.slow" in text, name


def test_a_process_that_a_test_starts_has_the_source_under_test(monkeypatch, tmp_path):
    program = [sys.executable, "-c", "import macer, processes; print(macer.__file__)"]
    seen = subprocess.run(program, env=surroundings(), capture_output=True, text=True, check=True)
    assert seen.stdout == f"{macer.__file__}\n"
    (tmp_path / "macer.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    seen = subprocess.run(program, env=surroundings(), capture_output=True, text=True, check=True)
    assert seen.stdout == f"{tmp_path / 'macer.py'}\n"


@pytest.mark.slow
def test_a_change_that_is_no_bug_survives_and_tests_that_do_not_end_are_told(monkeypatch):
    """Else every bug would count as noticed when the tests cannot even begin."""
    first = (ROOT / "src/macer/recipes/schedules.py").read_text().splitlines()[0]
    bug = Mutant("recipes/schedules.py", first, f"{first}\n", "recipes/test_schedules.py")
    assert mutation.outcome(bug) == SURVIVES
    assert mutation.outcome(MUTANTS["two-sided bound"]) == NOTICED
    monkeypatch.setattr(mutation, "LIMIT", 10)
    assert mutation.outcome(bug._replace(wrong="import time; time.sleep(60)")) == NO_END


def test_only_a_failure_is_a_notice(monkeypatch, capsys):
    """A bug that passes and one with which the tests do not end are both told."""
    bug = Mutant("system/errors.py", '"""', '"""', "support/test_mutants.py")
    bugs = {name: bug._replace(wrong=name) for name in OUTCOMES}
    monkeypatch.setattr(mutation, "outcome", lambda mutant: OUTCOMES[mutant.wrong])
    assert mutation.main(bugs, ["fails"]) == 0
    assert mutation.main(bugs, ["passes"]) == mutation.main(bugs, []) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"{NO_END}  hangs",
        "1 of 3 seeded bugs noticed",
    ]


OUTCOMES = {"fails": NOTICED, "passes": SURVIVES, "hangs": NO_END}


def test_the_parts_together_are_all_bugs(monkeypatch, capsys):
    bug = Mutant("system/errors.py", '"""', '"""', "support/test_mutants.py")
    bugs = {f"bug {i}": bug for i in range(7)}
    monkeypatch.setattr(mutation, "outcome", lambda _: NOTICED)
    for number in (5, 6, 7):  # as commits are counted
        assert mutation.main(bugs, [], f"{number}/3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split("  ")[-1].strip() for line in lines if " bug " in line) == sorted(bugs)
