"""Python that is started in a source folder whose native code was not compiled."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_error_names_the_folder_and_the_remedy(tmp_path: Path) -> None:
    package = tmp_path / "switchml"
    package.mkdir()
    shutil.copy(ROOT / "switchml" / "__init__.py", package)
    (package / "common").symlink_to(ROOT / "switchml" / "common")
    (package / "_native").mkdir()  # a source folder has only its type stubs
    # -S: without the packages that are installed, whose editable SwitchML would be found first.
    command = [sys.executable, "-S", "-c", "import switchml; switchml.connect"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: switchml is imported from {tmp_path}, a source folder whose native code was not compiled: start "
        f"Python in another folder, or run `pip install --editable {tmp_path}`"
    )
