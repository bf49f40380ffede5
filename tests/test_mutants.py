"""The seeded bugs can be applied; that each is noticed is for `make mutants`."""

from mutants import MUTANTS, ROOT


def test_every_seeded_bug_has_its_place():
    for name, mutant in MUTANTS.items():
        text = (ROOT / "src" / "macer" / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.right) == 1, name
        assert mutant.right != mutant.wrong, name
        assert all((ROOT / "tests" / file).is_file() for file in mutant.tests.split()), name
