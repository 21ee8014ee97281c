"""Command-line options for the address of the metrics server and the token that it requires."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

__all__ = ["MetricsPlace", "metrics_options", "parse_address", "read_token"]

_LEAST_TOKEN_CHARACTERS = 16

R = TypeVar("R")


class MetricsPlace(NamedTuple):
    """An address to serve metrics at. Without a token, everyone who can reach it can read them."""

    host: str
    port: int
    token: str = ""


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of "PORT", "HOST:PORT" or "[HOST]:PORT"; the default host is this machine's loopback.

    Raises:
        ValueError: the text has another form.

    """
    host, separator, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 2**16 and (host or not separator)):
        raise ValueError(f"{text!r} is neither PORT nor HOST:PORT with a port from 0 to 65535")
    return host.strip("[]") or "127.0.0.1", int(port)


def read_token(path: Path) -> str:
    """Return the token in a file, which other users must not be able to read.

    Raises:
        ValueError: the file cannot be read, is open to other users, or holds no usable token.

    """
    try:
        mode, token = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"token file {path} cannot be read: {error}") from None
    if mode & 0o007:
        raise ValueError(f"token file {path} can be read by every user; chmod 600 it")
    if len(token) < _LEAST_TOKEN_CHARACTERS or not all("!" <= character <= "~" for character in token):
        raise ValueError(
            f"token file {path} must hold one word of {_LEAST_TOKEN_CHARACTERS} printable characters or more"
        )
    return token


def metrics_options(prefix: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a click command --metrics and --metrics-token; it gets `metrics`, a MetricsPlace or None."""

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def combined(
            *arguments: object, metrics: tuple[str, int] | None, metrics_token: str | None, **options: object
        ) -> R:
            if metrics is None and metrics_token is not None:
                raise click.UsageError("--metrics-token is for --metrics, which is missing")
            place = None if metrics is None else MetricsPlace(*metrics, metrics_token or "")
            return command(*arguments, metrics=place, **options)

        address = click.option(
            "--metrics",
            envvar=f"{prefix}_METRICS",
            callback=_checked(parse_address),
            metavar="[HOST:]PORT",
            help="Serve metrics for Prometheus at this address; without a HOST on 127.0.0.1, with port 0 on any "
            f"free port.  [env: {prefix}_METRICS; default: metrics are not served]",
        )
        token = click.option(
            "--metrics-token",
            envvar=f"{prefix}_METRICS_TOKEN",
            callback=_checked(lambda text: read_token(Path(text))),
            metavar="FILE",
            help="Serve metrics only to clients that send the token in this file (Authorization: Bearer); "
            f"without it, to everyone who can reach the address.  [env: {prefix}_METRICS_TOKEN]",
        )
        return address(token(combined))

    return decorate


def _checked(parse: Callable[[str], R]) -> Callable[[click.Context, click.Parameter, str | None], R | None]:
    def callback(_context: click.Context, _parameter: click.Parameter, value: str | None) -> R | None:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback
