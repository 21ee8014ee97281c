"""The configuration of a Prometheus server for a fabric, and the rules and the dashboard that come with SwitchML.

The configuration has addresses and token in it, so the server needs no access to the run directory, which is closed to
other users.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from switchml.common.errors import NoFabricError
from switchml.common.metrics_address import read_token
from switchml.launch.fabric_processes import METRICS_TOKEN, PROMETHEUS_TARGETS
from switchml.launch.fabric_state import inspect
from switchml.launch.run_directory import RunDirectory

__all__ = ["ALERTS", "DASHBOARD", "configuration", "targets_of_fabric"]

_FILES: Final = Path(__file__).parents[1] / "monitoring"
ALERTS: Final = _FILES / "alerts.yml"
DASHBOARD: Final = _FILES / "grafana-dashboard.json"
_SCRAPE_INTERVAL: Final = "5s"


def targets_of_fabric(directory: RunDirectory) -> tuple[list[dict[str, Any]], str]:
    """Return the static_configs of a live fabric's processes, and the token that they require.

    Raises NoFabricError if no fabric runs there, or it serves no metrics, and RunDirectoryError.
    """
    if inspect(directory).state != "running":
        raise NoFabricError(
            f"no fabric runs in {directory.path}; start one with `switchml-ctl up`, or name the daemons with --daemon"
        )
    try:
        targets = json.loads((directory.path / PROMETHEUS_TARGETS).read_text(encoding="utf-8"))
        return targets, read_token(directory.path / METRICS_TOKEN)
    except (OSError, ValueError) as error:
        raise NoFabricError(
            f"the fabric in {directory.path} serves no metrics ({error}); one that `switchml-ctl up` starts does, "
            "unless it is in network namespaces"
        ) from error


def configuration(targets: Sequence[dict[str, Any]], token: str, rules: Path | None) -> str:
    """Return a configuration of Prometheus: `targets` are static_configs; an empty token is not sent."""
    scraped: dict[str, Any] = {"job_name": "switchml", "static_configs": list(targets)}
    if token:
        scraped["authorization"] = {"credentials": token}
    content: dict[str, Any] = {"global": {"scrape_interval": _SCRAPE_INTERVAL}}
    if rules is not None:
        content["rule_files"] = [str(rules.absolute())]
    return yaml.safe_dump({**content, "scrape_configs": [scraped]}, sort_keys=False)
