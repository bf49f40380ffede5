"""The build: an archive carries the commit it is of, for `macer --version` and for manifests."""

import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = {"sdist": "src/macer/system", "wheel": "macer/system"}


class CommitHook(BuildHookInterface):
    """Adds commit.txt, which is written outside the tree; an unpacked sdist has it already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file where the commit is known."""
        self.folder = TemporaryDirectory()
        source = Path(self.root, "src/macer/system")
        module = runpy.run_path(str(source / "commit.py"))
        commit = module["commit"]()
        if commit is None or (source / module["FILE"]).exists():
            return
        file = Path(self.folder.name, module["FILE"])
        file.write_text(f"{commit}\n", encoding="ascii")
        build_data["force_include"][str(file)] = f"{PACKAGE[self.target_name]}/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file, which the archive has by now."""
        self.folder.cleanup()
