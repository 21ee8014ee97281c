"""The standard streams of switchml-ctl: results on standard output, remarks on standard error."""

import io
import sys

import click

__all__ = ["note", "replace_what_cannot_be_encoded"]


def replace_what_cannot_be_encoded() -> None:
    """Let standard output and error show "?" for characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def note(text: str) -> None:
    """Write a remark to standard error."""
    click.echo(f"switchml-ctl: {text}", err=True)
