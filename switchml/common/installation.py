"""Find out how SwitchML was installed, and so by which command a user adds to it."""

from __future__ import annotations

import json
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from switchml.common.version import VERSION

__all__ = ["DEBIAN_INSTALLER", "compile_command", "install_command", "reinstall_command"]

DEBIAN_INSTALLER: Final = "dpkg"
"""The text of the file INSTALLER in the Debian package's environment, where others have "pip" or "uv"."""


def install_command(extra: str) -> str:
    """Return the command that installs what an extra of the package, such as "torch", needs."""
    manager = _manager()
    if manager == DEBIAN_INSTALLER:
        return _in_a_new_environment(shlex.quote(f"switchml[{extra}]=={VERSION}"))
    option = "--force " if manager == "pipx" else ""
    return f"{manager} install {option}{_editable()}{shlex.quote(f'{_source()}[{extra}]')}"


def reinstall_command() -> str:
    """Return the command that installs SwitchML's own files again."""
    manager = _manager()
    if manager == DEBIAN_INSTALLER:
        return "sudo apt reinstall switchml"
    return f"{manager} install {_again(manager)} {_editable()}{shlex.quote(_source())}"


def compile_command() -> str:
    """Return the command that compiles SwitchML on this machine, with the libraries that wheels do without."""
    manager, source = _manager(), _source()
    if manager == DEBIAN_INSTALLER:
        return _in_a_new_environment(f"--no-binary switchml switchml=={VERSION}")
    if source != "switchml":
        return reinstall_command()
    if manager == "pipx":
        return "pipx install --force --pip-args='--no-binary switchml' switchml"
    option = "--no-binary-package" if manager == "uv tool" else "--no-binary"
    return f"{manager} install {_again(manager)} {option} switchml switchml"


def _in_a_new_environment(arguments: str) -> str:
    """Return the command for users of the Debian package, whose own environment is the package manager's."""
    return f"python3 -m venv switchml && switchml/bin/pip install {arguments}"


def _again(manager: str) -> str:
    """Return the option with which a program installs what is there already."""
    return {"pip": "--force-reinstall --no-deps", "pipx": "--force"}.get(manager, "--reinstall")


def _manager() -> str:
    """Return the program that has installed SwitchML: "pip", "uv pip", "uv tool", "pipx" or "dpkg"."""
    if (Path(sys.prefix) / "uv-receipt.toml").exists():
        return "uv tool"
    if (Path(sys.prefix) / "pipx_metadata.json").exists():
        return "pipx"
    return {"uv": "uv pip", DEBIAN_INSTALLER: DEBIAN_INSTALLER}.get(_recorded("INSTALLER").strip(), "pip")


def _source() -> str:
    """Return the folder that SwitchML was installed from, or its name if it was a wheel."""
    if not _has_metadata():
        return str(Path(__file__).resolve().parents[2])  # imported from a source folder
    url = _direct_url()
    return unquote(urlsplit(str(url["url"])).path) if "dir_info" in url else "switchml"


def _editable() -> str:
    information = _direct_url().get("dir_info")
    return "--editable " if isinstance(information, dict) and information.get("editable") else ""


def _direct_url() -> dict[str, object]:
    """Return what pip and uv record of an installation that was not from an index."""
    found = json.loads(_recorded("direct_url.json") or "{}")
    return found if isinstance(found, dict) else {}


def _has_metadata() -> bool:
    try:
        metadata.distribution("switchml")
    except metadata.PackageNotFoundError:
        return False
    return True


def _recorded(name: str) -> str:
    """Return a file of the installed package's metadata, "" without one."""
    try:
        return metadata.distribution("switchml").read_text(name) or ""
    except metadata.PackageNotFoundError:
        return ""
