import ast
from functools import cache
from pathlib import Path

import pytest

import macer
from macer.runs import names
from macer.runs.names import TABLE, is_rescored, rescored_file, soft_beta, soft_folder

SOURCE = Path(macer.__file__).parent
HOME = SOURCE / "runs" / "names.py"
SPELT = [value for name, value in vars(names).items() if name.isupper()]


@cache
def texts(file: Path) -> list[str]:
    """Every string of a module that is no docstring; of an f-string its pieces."""
    tree = ast.parse(file.read_text("utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
    ]


def test_the_names_are_those_of_every_run():
    assert SPELT == [
        "manifest.json", "checkpoints", "model.safetensors", "metrics.jsonl",
        "certificates.journal", "certificates.tsv", "held-out", ".parts", "bernstein-",
        "rescored-",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SPELT)
def test_one_module_spells_the_name(name):
    """Two of them are words of messages too, and are looked for as a whole text."""
    is_word = name in ("checkpoints", "held-out")
    found = {
        file
        for file in SOURCE.rglob("*.py")
        if any(name == text if is_word else name in text for text in texts(file))
    }
    assert found == {HOME}


@pytest.mark.parametrize("bound", ["clopper-pearson", "runner-up", "hoeffding", "bernstein"])
@pytest.mark.parametrize("alpha", [0.001, 1e-7, 0.0010000001])
def test_a_rescored_table_has_a_name_of_its_own_and_never_that_of_the_certificates(bound, alpha):
    file = rescored_file(Path("run"), bound, alpha)
    assert file == Path("run") / f"rescored-{bound}-{alpha}.tsv"
    assert is_rescored(file) and not is_rescored(Path("run") / TABLE)
    assert float(file.stem.removeprefix(f"rescored-{bound}-")) == alpha


@pytest.mark.parametrize("beta", [1.0, 0.25, 16.0, 1e6, 1e-5])
def test_a_soft_folder_has_its_beta_in_its_name(beta):
    folder = soft_folder(Path("run"), beta)
    assert folder.parent == Path("run") and folder.name == f"bernstein-{beta:g}"
    assert float(soft_beta(folder.name)) == beta
