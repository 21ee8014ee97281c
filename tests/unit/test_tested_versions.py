"""The versions of other programs that are tested, and how a machine's are found."""

import os
import platform
from pathlib import Path

import pytest

from switchml.ops import doctor, tested_versions
from switchml.ops.tested_versions import FILE, compared, found_versions
from tests.tested_versions import with_versions


def program(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_versions_are_what_programs_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "mpirun", "echo 'mpirun (Open MPI) 5.0.7'; echo 'Report bugs to 1.2.3.4'")
    program(tmp_path, "p4c-bm2-ss", "echo 'p4c-bm2-ss'; echo 'Version 1.2.6 (SHA: 12ab)' >&2; exit 1")
    program(tmp_path, "simple_switch_grpc", "echo no version")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    found = found_versions()
    assert found["Open MPI"] == "5.0.7"
    assert found["p4c"] == "1.2.6"
    assert "BMv2" not in found
    assert found["Python"] == platform.python_version()
    checks = {check.name: check for check in doctor._optional_programs()}
    assert checks["Open MPI"].found.startswith("5.0.7; tested: ")
    assert (checks["BMv2"].status, checks["p4c"].status) == ("not found", "ok")


def test_tested_versions_are_shown_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested_versions, "tested_versions", lambda: {"torch": ("2.13.0", "2.15.0")})
    assert compared("torch", "2.15.0") == "2.15.0"
    assert compared("torch", "2.14.0") == "2.14.0; tested: 2.13.0, 2.15.0"
    assert compared("matplotlib", "3.9") == "3.9"


def test_new_versions_are_added_in_their_order() -> None:
    text = FILE.read_text()
    assert with_versions({}) == text
    assert '"2.9.1"' not in text
    added = with_versions({"torch": "2.9.1", "Another program": "1.15"})
    assert 'torch = ["2.9.1", "2.13.0"' in added
    assert added.endswith('"Another program" = ["1.15"]\n')
