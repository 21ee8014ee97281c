"""The standard streams of switchml-ctl: results on standard output, messages on standard error."""

import io
import sys

import click

__all__ = ["note", "replace_unencodable_characters"]


def replace_unencodable_characters() -> None:
    """Make standard output and error show "?" for characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def note(text: str) -> None:
    """Write a message to standard error."""
    click.echo(f"switchml-ctl: {text}", err=True)
