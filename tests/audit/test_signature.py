"""A signature counts if a key of the allowed signers made it, of these bytes, for this purpose."""

import shutil
import subprocess
from pathlib import Path

import pytest

from macer.audit.signature import check_signature
from macer.system.errors import AuditFailed, Mistake

needs_ssh = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed"
)

CONTENT = b'{"schema": 1}\n'


def call(*words: object) -> None:
    subprocess.run(["ssh-keygen", *map(str, words)], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two keys, of which the first may sign, and signatures by both."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ann", "eve"):
        call("-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name)
        sign(folder, name)
    key = (folder / "ann.pub").read_text()
    (folder / "signers").write_text(f"ann@example.org {key}")
    sign(folder, "ann", "git")
    return folder


def sign(folder: Path, name: str, purpose: str = "macer") -> None:
    """Write NAME-PURPOSE.sig."""
    file = folder / f"{name}-{purpose}"
    file.write_bytes(CONTENT)
    call("-q", "-Y", "sign", "-f", folder / name, "-n", purpose, file)


def check(folder: Path, signature: str, content: bytes = CONTENT) -> str:
    return check_signature(content, folder / signature, folder / "signers")


# law


@needs_ssh
def test_a_signature_by_an_allowed_key_names_its_signer(folder: Path) -> None:
    assert check(folder, "ann-macer.sig") == "ann@example.org"


@needs_ssh
@pytest.mark.parametrize("content", [b"", CONTENT + b" ", CONTENT.replace(b"1", b"2")])
def test_a_signature_of_other_bytes_does_not_count(folder: Path, content: bytes) -> None:
    with pytest.raises(AuditFailed, match=r"not a signature of this evidence by ann@"):
        check(folder, "ann-macer.sig", content)


@needs_ssh
def test_a_signature_by_another_key_does_not_count(folder: Path) -> None:
    with pytest.raises(AuditFailed, match="is not a signature by a key of"):
        check(folder, "eve-macer.sig")


@needs_ssh
def test_a_signature_for_another_purpose_does_not_count(folder: Path) -> None:
    with pytest.raises(AuditFailed, match="is not a signature of this evidence"):
        check(folder, "ann-git.sig")


@needs_ssh
def test_of_several_names_of_a_key_the_first_is_told(folder: Path, tmp_path: Path) -> None:
    key = (folder / "ann.pub").read_text()
    signers = tmp_path / "signers"
    signers.write_text(f"ann@work,ann@home {key}")
    assert check_signature(CONTENT, folder / "ann-macer.sig", signers) == "ann@work"
    signers.write_text(f'ann@work namespaces="git" {key}')
    with pytest.raises(AuditFailed, match="is not a signature of this evidence by ann@work"):
        check_signature(CONTENT, folder / "ann-macer.sig", signers)


@needs_ssh
def test_what_is_no_signature_does_not_count(folder: Path) -> None:
    with pytest.raises(AuditFailed, match="is not a signature by a key of") as failed:
        check(folder, "signers")
    assert "\n" not in str(failed.value)


# refusal


def test_a_signature_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"signature must be a file, got .*none, which is none"):
        check(tmp_path, "none")


def test_without_ssh_keygen_no_signature_can_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.sig").write_text("")
    (tmp_path / "signers").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Mistake, match="ssh-keygen must be installed to check a signature"):
        check(tmp_path, "a.sig")
