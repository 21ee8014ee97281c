"""The commands that messages name fit the way in which SwitchML was installed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from switchml.common import installation
from switchml.common.version import VERSION

ROOT = Path(__file__).parents[2]
FOLDER = {"url": "file:///src/switch%20ml", "dir_info": {}}
EDITABLE = {"url": "file:///src/switchml", "dir_info": {"editable": True}}
WHEEL = {"url": "file:///tmp/switchml-0.1.0-cp312-abi3-manylinux_2_28_x86_64.whl", "archive_info": {}}
PROGRAMS = {"pip": [sys.executable, "-m", "pip"], "uv": [str(Path(sysconfig.get_path("scripts")) / "uv")]}
OF_A_USER = "python3 -m venv switchml && switchml/bin/pip install"


def install(
    place: Path, monkeypatch: pytest.MonkeyPatch, installer: str, url: dict[str, object] | None, of_a_tool: str | None
) -> None:
    """Write the metadata that an installer leaves, and let Python find it first."""
    information = place / f"switchml-{VERSION}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: switchml\nVersion: {VERSION}\n")
    (information / "INSTALLER").write_text(f"{installer}\n")
    if url is not None:
        (information / "direct_url.json").write_text(json.dumps(url))
    if of_a_tool is not None:
        (place / of_a_tool).touch()
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    monkeypatch.setattr(sys, "prefix", str(place))


def refusal(command: str) -> str:
    """Return what pip or uv says against the options of a command, "" if it knows them all; nothing is installed."""
    program, *arguments = shlex.split(command)
    if program not in PROGRAMS:
        return ""
    line = [*PROGRAMS[program], *arguments, "--help"]  # which both heed after they have read the options before it
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize(
    ("installer", "url", "of_a_tool", "extra", "again", "compiled"),
    [
        (
            *("pip", EDITABLE, None),
            "pip install --editable '/src/switchml[torch]'",
            "pip install --force-reinstall --no-deps --editable /src/switchml",
            "pip install --force-reinstall --no-deps --editable /src/switchml",
        ),
        (
            *("uv", FOLDER, None),
            "uv pip install '/src/switch ml[torch]'",
            "uv pip install --reinstall '/src/switch ml'",
            "uv pip install --reinstall '/src/switch ml'",
        ),
        (
            *("pip", None, None),
            "pip install 'switchml[torch]'",
            "pip install --force-reinstall --no-deps switchml",
            "pip install --force-reinstall --no-deps --no-binary switchml switchml",
        ),
        (
            *("uv", WHEEL, None),
            "uv pip install 'switchml[torch]'",
            "uv pip install --reinstall switchml",
            "uv pip install --reinstall --no-binary switchml switchml",
        ),
        (
            *("uv", None, "uv-receipt.toml"),
            "uv tool install 'switchml[torch]'",
            "uv tool install --reinstall switchml",
            "uv tool install --reinstall --no-binary-package switchml switchml",
        ),
        (
            *("pip", None, "pipx_metadata.json"),
            "pipx install --force 'switchml[torch]'",
            "pipx install --force switchml",
            "pipx install --force --pip-args='--no-binary switchml' switchml",
        ),
        (
            *("dpkg", None, None),
            f"{OF_A_USER} 'switchml[torch]=={VERSION}'",
            "sudo apt reinstall switchml",
            f"{OF_A_USER} --no-binary switchml switchml=={VERSION}",
        ),
    ],
    ids=["editable", "folder", "wheel", "uv-wheel", "uv-tool", "pipx", "debian"],
)
def test_a_hint_fits_the_way_of_installation(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    installer: str,
    url: dict[str, object] | None,
    of_a_tool: str | None,
    extra: str,
    again: str,
    compiled: str,
) -> None:
    install(tmp_path, monkeypatch, installer, url, of_a_tool)
    assert installation.install_command("torch") == extra
    assert installation.reinstall_command() == again
    assert installation.compile_command() == compiled
    for command in (extra, again, compiled):
        assert refusal(command) == ""


def test_without_metadata_it_is_the_source_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert installation.install_command("torch") == f"pip install '{ROOT}[torch]'"


def test_messages_name_no_other_command() -> None:
    """Examples are run by those who have a Python with pip, and studies in a checkout."""
    sources = (path for part in ("switchml", "topologies") for path in (ROOT / part).rglob("*.py"))
    found = [path for path in sources if "pip install" in path.read_text()]
    assert {path.name for path in found} == {"__init__.py", "installation.py"}  # the first is of an uncompiled folder
