"""`switchml-ctl top`: the current activity of the fabric."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from switchml.commands.command import Command, Parsed
from switchml.commands.result import Feed, Result
from switchml.commands.session import CommandSession
from switchml.common.errors import ConfigurationError
from switchml.common.metrics_address import parse_address

if TYPE_CHECKING:
    from switchml.ops.live_page.server import LivePage
    from switchml.ops.top import Snapshot

__all__ = ["Activity", "ServedPage", "show_top"]

_WEB_ADDRESS: Final = ("127.0.0.1", 7680)


@dataclasses.dataclass(frozen=True)
class Activity(Result):
    """Snapshots of the fabric's activity as they are taken; JSON has the first."""

    snapshots: Iterator[Snapshot]

    def as_dict(self) -> dict[str, Any]:
        """Return the next snapshot as a dictionary for JSON."""
        return next(self.snapshots).as_dict()


@dataclasses.dataclass(frozen=True)
class ServedPage(Feed):
    """The page that shows the activity in a browser, served until the command is interrupted."""

    page: LivePage

    def as_dict(self) -> dict[str, Any]:
        """Return the link as a dictionary for JSON."""
        return {"url": self.page.url}

    def parts(self) -> Iterator[dict[str, Any]]:
        """Yield the link, then serve the page."""
        yield self.as_dict()
        self.page.serve()


@click.command(
    "top",
    cls=Command,
    epilog="""\b
Examples:
  switchml-ctl top
  switchml-ctl top --interval 5
  switchml-ctl top --once --json | jq '.jobs[].bytes_per_second'
  switchml-ctl top --web
  switchml-ctl top --web --address 10.0.0.1:7680 --certificate /etc/switchml/page""",
)
@click.option(
    "--interval", type=click.FloatRange(0.5, 60), metavar="S",
    help="Seconds between two readings; rates are measured between them.  [default: 2; with --web 1]",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Show one snapshot, after one interval.")
@click.option(
    "--web", is_flag=True, help="Serve a page for browsers, and print its link: also the tree, drops and events."
)
@click.option(
    "--address", type=Parsed("address", parse_address), metavar="[HOST:]PORT",
    help="Where --web serves the page; with port 0 at any free port.  [default: 127.0.0.1:7680]",
)  # fmt: skip
@click.option(
    "--certificate", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY",
    help="Serve the page over TLS, as an --address beyond loopback needs, with ca.crt, tls.crt and tls.key in this "
    "directory; tls.crt is for the name by which browsers know this host.",
)  # fmt: skip
@click.pass_obj
def show_top(
    session: CommandSession,
    interval: float | None,
    once: bool,
    web: bool,
    address: tuple[str, int] | None,
    certificate: Path | None,
) -> Result:
    """Show live jobs with rates, retransmissions and lagging ranks, until interrupted. --json shows one snapshot.

    A job's rate is that of its slowest rank, in bytes of tensors. Agents report their counters once a second.
    """
    if web and once:
        raise click.UsageError("--once is for the terminal: a page shows what goes on until the command ends")
    if web:
        return ServedPage(_live_page(session, interval or 1.0, address or _WEB_ADDRESS, certificate))
    if address is not None or certificate is not None:
        raise click.UsageError("--address and --certificate are for --web, which is missing")

    from switchml.ops import top

    client = session.client_until_shown()
    return Activity(itertools.islice(top.watch(client, interval or 2.0), 1 if once else None))


def _live_page(
    session: CommandSession, interval: float, address: tuple[str, int], certificate: Path | None
) -> LivePage:
    try:
        from switchml.ops.live_page.server import LivePage, PageAddress
    except ModuleNotFoundError as error:
        from switchml.common.installation import install_command

        raise ConfigurationError(f"--web needs Starlette and uvicorn ({error}): {install_command('web')}") from None
    from switchml.common.tls import Certificates

    place = PageAddress(*address, Certificates(certificate) if certificate is not None else None)
    return LivePage(session.client_until_shown(), interval, place)
