"""Where a process serves its metrics, as an option's value says."""

from __future__ import annotations

__all__ = ["parse_address"]


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of "PORT", "HOST:PORT" or "[HOST]:PORT"; without a host it is this machine's loopback.

    Raises:
        ValueError: it is none of these.

    """
    host, separator, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 2**16 and (host or not separator)):
        raise ValueError(f"{text!r} is neither PORT nor HOST:PORT with a port from 0 to 65535")
    return host.strip("[]") or "127.0.0.1", int(port)
