"""Where a fabric of this machine is: the rule of `switchml-ctl up`, written down here once for the library.

A test compares it with topologies', which this library must not import.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from switchml.errors import ConnectError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["agent_sockets", "default_run_directory"]


def default_run_directory(environ: Mapping[str, str]) -> Path:
    """Return the run directory where SWITCHML_RUN_DIR names none.

    It is `run_dir` of the configuration file ($SWITCHML_CONFIG, else switchml/config.toml in $XDG_CONFIG_HOME or
    ~/.config), else $XDG_RUNTIME_DIR/switchml, else /tmp/switchml-UID.

    Raises:
        ConnectError: the configuration file cannot be read.

    """
    configured = _configured(environ)
    if configured:
        return Path(configured).expanduser().absolute()
    if environ.get("XDG_RUNTIME_DIR"):
        return Path(environ["XDG_RUNTIME_DIR"], "switchml")
    return Path("/tmp") / f"switchml-{os.getuid()}"  # noqa: S108 - owner and mode are checked before use


def agent_sockets(directory: Path) -> list[Path]:
    """Return the sockets of the agents of the fabric in a run directory; none where there is no fabric.

    Raises:
        ConnectError: the directory is not this user's alone, so that another user may have made it.

    """
    state = directory / "fabric.json"
    try:
        text = state.read_text(encoding="utf-8")
        status = directory.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectError(f"the run directory {directory} cannot be read: {error}; set SWITCHML_RUN_DIR") from error
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not ours or stat.S_IMODE(status.st_mode) & 0o077:
        raise ConnectError(
            f"the run directory {directory} must be a directory of user {os.geteuid()} that nobody else can enter; "
            "set SWITCHML_RUN_DIR to one, or SWITCHML_AGENT to the socket of an agent"
        )
    try:
        return [Path(agent["socket"]) for agent in json.loads(text)["agents"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectError(f"{state} is not what `switchml-ctl up` writes: {error!r}; begin anew with it") from error


def _configured(environ: Mapping[str, str]) -> str:
    named = environ.get("SWITCHML_CONFIG")
    home = environ.get("XDG_CONFIG_HOME")
    path = Path(named) if named else (Path(home) if home else Path.home() / ".config") / "switchml" / "config.toml"
    try:
        run_dir = tomllib.loads(path.read_text(encoding="utf-8")).get("run_dir", "")
    except FileNotFoundError:
        if named:
            raise ConnectError(f"configuration file {path} (SWITCHML_CONFIG) does not exist") from None
        return ""
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConnectError(f"configuration file {path} cannot be read: {error}") from error
    if not isinstance(run_dir, str):
        raise ConnectError(f"configuration file {path}: run_dir is {run_dir!r} and must be a text")
    return run_dir
