"""The commands of switchml-ctl that set monitoring up."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from switchml.commands.command import CommandGroup, Parsed
from switchml.commands.result import Result
from switchml.commands.session import CommandSession

__all__ = ["MonitoringFile", "monitoring_group"]


@dataclasses.dataclass(frozen=True)
class MonitoringFile(Result):
    """The content of a file for Prometheus or Grafana."""

    content: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"content": self.content}


def _daemon(text: str) -> dict[str, Any]:
    """Return the static_config of a daemon: PROCESS=HOST:PORT."""
    from switchml.common.grpc_address import parse_host_port

    process, equals, address = text.partition("=")
    if not process or not equals:
        raise ValueError(f"{text!r} is not PROCESS=HOST:PORT")
    parse_host_port(address)
    return {"targets": [address], "labels": {"process": process}}


def _token(path: str) -> str:
    from switchml.common.metrics_address import read_token

    return read_token(Path(path))


@click.group("monitoring", cls=CommandGroup)
def monitoring_group() -> None:
    """Print files for Prometheus and Grafana: a configuration, alerts, a dashboard (docs/operate/monitoring.md)."""


@monitoring_group.command(
    "prometheus",
    epilog="""\b
Examples:
  switchml-ctl monitoring prometheus --rules alerts.yml > prometheus.yml
  switchml-ctl monitoring prometheus --daemon controller=10.0.0.1:9801 --daemon h1=10.0.0.7:9803 --token token""",
)
@click.option(
    "--daemon", "daemons", multiple=True, type=Parsed("daemon", _daemon), metavar="PROCESS=HOST:PORT",
    help="A daemon that was started with --metrics, and the label `process` for it; repeat for more.  [default: the "
    "processes of the run directory's fabric]",
)  # fmt: skip
@click.option("--token", type=Parsed("token", _token), metavar="FILE", help="File with the token of these daemons.")
@click.option(
    "--rules", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="File to which `monitoring alerts` has been, or will be, written.",
)  # fmt: skip
@click.pass_obj
def show_configuration(
    session: CommandSession, daemons: tuple[dict[str, Any], ...], token: str | None, rules: Path | None
) -> MonitoringFile:
    """Print a configuration of Prometheus for the run directory's fabric, or for daemons.

    It contains the addresses and the token of the processes, so that Prometheus can run as another user, who could not
    read the run directory. Keep it from others, and write it again when the fabric has been started again.
    """
    from switchml.ops import prometheus

    if token and not daemons:
        raise click.UsageError("--token is for daemons (--daemon)")
    found, secret = (daemons, token or "") if daemons else prometheus.targets_of_fabric(session.run_directory())
    return MonitoringFile(prometheus.configuration(found, secret, rules))


@monitoring_group.command("alerts", epilog="\b\nExample:\n  switchml-ctl monitoring alerts > alerts.yml")
def show_alerts() -> MonitoringFile:
    """Print the alerting rules for Prometheus."""
    from switchml.ops import prometheus

    return MonitoringFile(prometheus.ALERTS.read_text(encoding="utf-8"))


@monitoring_group.command("dashboard", epilog="\b\nExample:\n  switchml-ctl monitoring dashboard > dashboard.json")
def show_dashboard() -> MonitoringFile:
    """Print the dashboard for Grafana: Dashboards, New, Import."""
    from switchml.ops import prometheus

    return MonitoringFile(prometheus.DASHBOARD.read_text(encoding="utf-8"))
