"""Finds the agents of the fabric on this machine for a training process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from switchml.client.errors import ConnectError
from switchml.common.errors import ConfigurationError, RunDirectoryError
from switchml.common.run_directory import default_run_directory, expanded, read_config_file, require_private

__all__ = ["agent_sockets", "configured_run_directory"]


def configured_run_directory(environ: Mapping[str, str]) -> Path:
    """Return SWITCHML_RUN_DIR, else `run_dir` of the configuration file, else the default run directory.

    Raises:
        ConnectError: the configuration file cannot be read, or the directory is that of a user without a home.

    """
    try:
        given = environ.get("SWITCHML_RUN_DIR")
        if given:
            return expanded(given)
        path, content = read_config_file(environ)
        run_dir = content.get("run_dir", "")
        if not isinstance(run_dir, str):
            raise ConnectError(f"configuration file {path}: run_dir is {run_dir!r}; it must be a string")
        return expanded(run_dir) if run_dir else default_run_directory(environ)
    except ConfigurationError as error:
        raise ConnectError(str(error)) from error


def agent_sockets(directory: Path) -> list[Path]:
    """Return the sockets of the agents of the fabric in a run directory; an empty list if no fabric is there.

    Raises:
        ConnectError: other users can access the directory, so that it may not be this user's; or its files cannot be
            read.

    """
    state = directory / "fabric.json"
    try:
        text = state.read_text(encoding="utf-8")
        require_private(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectError(f"the run directory {directory} cannot be read: {error}; set SWITCHML_RUN_DIR") from error
    except RunDirectoryError as error:
        raise ConnectError(f"{error}, or set SWITCHML_AGENT to the socket of an agent") from error
    try:
        return [Path(agent["socket"]) for agent in json.loads(text)["agents"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectError(
            f"{state} was not written by `switchml-ctl up`: {error!r}; start the fabric again"
        ) from error
