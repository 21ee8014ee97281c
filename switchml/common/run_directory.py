"""The place of this machine's fabric: the configuration file, which may name it, and the run directory."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import ConfigurationError, RunDirectoryError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "CONFIG_VARIABLE",
    "default_config_file",
    "default_run_directory",
    "expanded",
    "read_config_file",
    "require_private",
]

CONFIG_VARIABLE: Final = "SWITCHML_CONFIG"
"""The environment variable that names the configuration file."""

_CHOOSE: Final = "choose another (--run-dir, SWITCHML_RUN_DIR)"


def default_config_file(environ: Mapping[str, str]) -> Path | None:
    """Return switchml/config.toml in $XDG_CONFIG_HOME, by default in ~/.config; None for a user without a home."""
    home = environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(home) if home else Path.home() / ".config") / "switchml" / "config.toml"
    except RuntimeError:  # neither $HOME nor an entry in passwd(5)
        return None


def expanded(path: str) -> Path:
    """Return the absolute path of a text that may begin with ~.

    Raises:
        ConfigurationError: that user has no home directory, or does not exist.

    """
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigurationError(f"path {path}: {error}; give an absolute path") from None


def read_config_file(environ: Mapping[str, str], named: Path | None = None) -> tuple[Path | None, dict[str, Any]]:
    """Return the path of the configuration file and its content, which is empty if the default file does not exist.

    The file is `named`, else $SWITCHML_CONFIG, else the default one.

    Raises:
        ConfigurationError: a file that was named does not exist, or the file cannot be read or is not TOML.

    """
    variable = environ.get(CONFIG_VARIABLE)
    asked = named or (Path(variable) if variable else None)
    path = asked or default_config_file(environ)
    if path is None:
        return None, {}
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if asked is not None:
            raise ConfigurationError(f"configuration file {path} does not exist") from None
        return path, {}
    except OSError as error:
        raise ConfigurationError(f"configuration file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"configuration file {path} is not TOML: {error}") from error


def default_run_directory(environ: Mapping[str, str]) -> Path:
    """Return $XDG_RUNTIME_DIR/switchml, else /tmp/switchml-UID: the run directory if none is configured."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "switchml"
    return Path("/tmp") / f"switchml-{os.getuid()}"  # noqa: S108 - owner and mode are checked before use


def require_private(path: Path) -> None:
    """Check that a run directory belongs to this user, and that no other user can enter it.

    Raises:
        RunDirectoryError: it does not, so another user may have created it; or it does not exist.

    """
    try:
        status = path.lstat()
    except OSError as error:
        raise RunDirectoryError(f"run directory {path}: {error.strerror}") from error
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode):
        raise RunDirectoryError(f"run directory {path} is not a directory; {_CHOOSE}")
    if status.st_uid != os.geteuid():
        raise RunDirectoryError(f"run directory {path} belongs to user {status.st_uid}; {_CHOOSE}")
    if mode & 0o077:
        raise RunDirectoryError(
            f"run directory {path} is open to others (mode {mode:04o}); close it with `chmod 700 {path}` or {_CHOOSE}"
        )
