"""The resources that the compiled TNA program uses of one pipe, from the compiler's reports, and their limits.

The reports are those of p4c's Tofino back end, called with ``-g``, and of its assembler: ``context.json``,
``logs/resources.json``, ``logs/phv.json`` and ``logs/power.json`` in the folder of the pipe.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "BudgetError",
    "Figure",
    "Report",
    "Stage",
    "check_budget",
    "markdown_lines",
    "read_budget",
    "read_report",
    "report_lines",
]


class BudgetError(Exception):
    """The program exceeds the budget, or budget and report have different figures; the text says which."""


@dataclass(frozen=True)
class Figure:
    """The amount used of one kind of resource; ``available`` is None if the chip sets no limit."""

    used: int
    available: int | None


@dataclass(frozen=True)
class Stage:
    """The resources of one match-action stage, ingress and egress together; each has four stateful ALUs."""

    number: int
    stateful_alus: int
    sram_blocks: int
    map_rams: int
    tcam_blocks: int
    logical_tables: int


@dataclass(frozen=True)
class Report:
    """The figures of one compilation, by name, and its stages in order."""

    figures: dict[str, Figure]
    stages: list[Stage]

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``resources.json`` in the build folder."""
        return {
            "figures": {
                name: {"used": one.used, "available": one.available} for name, one in sorted(self.figures.items())
            },
            "stages": [vars(stage) for stage in self.stages],
        }


def read_report(pipe: Path) -> Report:
    """Return the figures of the compilation whose outputs are in ``pipe``.

    Raises:
        FileNotFoundError: a report is missing.
        KeyError: a report does not have the form of p4c 9.13.

    """
    resources = _load(pipe / "logs" / "resources.json")["resources"]
    stages = [_stage(one) for one in resources["mau"]["mau_stages"]]
    figures = {
        **_stages_of_each_gress(_load(pipe / "context.json"), resources["mau"]["nStages"]),
        **_totals(stages, resources["mau"]),
        **_containers(_load(pipe / "logs" / "phv.json"), resources["phv_containers"]),
    }
    for parser in resources["parser"]["parsers"]:
        if parser["parser_id"] == 0:
            figures[f"{parser['gress']}_parser_rows"] = Figure(len(parser["states"]), parser["nStates"])
    power = _load(pipe / "logs" / "power.json")
    for one in power["total_latency"]:
        figures[f"{one['gress']}_latency"] = Figure(one["latency"], None)
    figures["power"] = Figure(round(1000 * sum(one["power"] for one in power["total_power"])), None)
    return Report(figures, stages)


def read_budget(path: Path) -> dict[str, int]:
    """Return the limits of a budget file by the name of their figure."""
    limits = tomllib.loads(path.read_text(encoding="utf-8"))["limit"]
    return {str(name): int(limit) for name, limit in limits.items()}


def check_budget(report: Report, budget: Mapping[str, int]) -> None:
    """Compare a report with a budget.

    Raises:
        BudgetError: a figure exceeds its limit, has none, or is not in the report.

    """
    complaints = [f"{name} has no limit" for name in sorted(report.figures.keys() - budget.keys())]
    complaints += [f"{name} is not in the report" for name in sorted(budget.keys() - report.figures.keys())]
    complaints += [
        f"{name} is {report.figures[name].used}, the limit {budget[name]}"
        for name in sorted(report.figures.keys() & budget.keys())
        if report.figures[name].used > budget[name]
    ]
    if complaints:
        raise BudgetError("the budget is exceeded or incomplete: " + "; ".join(complaints))


def report_lines(report: Report, budget: Mapping[str, int]) -> list[str]:
    """Return the report as two tables for people: the figures with their limits, and the stages."""
    lines = [f"{'':22}{'used':>8}{'chip':>8}{'budget':>8}"]
    for name, figure in sorted(report.figures.items()):
        available = "" if figure.available is None else figure.available
        lines.append(f"{name.replace('_', ' '):22}{figure.used:>8}{available:>8}{budget.get(name, ''):>8}")
    columns = ("stateful_alus", "sram_blocks", "map_rams", "tcam_blocks", "logical_tables")
    lines += ["", "stage " + "".join(f"{column.replace('_', ' '):>15}" for column in columns)]
    for stage in report.stages:
        lines.append(f"{stage.number:>5} " + "".join(f"{getattr(stage, column):>15}" for column in columns))
    return lines


def markdown_lines(report: Report, budget: Mapping[str, int]) -> list[str]:
    """Return the figures as a table in Markdown, for dataplane/README.md."""
    lines = ["| | used | chip | budget |", "|---|---|---|---|"] if budget else ["| | used | chip |", "|---|---|---|"]
    for name, figure in sorted(report.figures.items()):
        available = "" if figure.available is None else figure.available
        limit = f" {budget[name]} |" if budget else ""
        lines.append(f"| {name.replace('_', ' ')} | {figure.used} | {available} |{limit}")
    return lines


def _load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def _stage(stage: Mapping[str, Any]) -> Stage:
    return Stage(
        number=stage["stage_number"],
        stateful_alus=len(stage["meter_alus"]["meters"]),
        sram_blocks=len(stage["rams"]["srams"]),
        map_rams=len(stage["map_rams"]["maprams"]),
        tcam_blocks=len(stage["tcams"]["tcams"]),
        logical_tables=len(stage["logical_tables"]["ids"]),
    )


def _totals(stages: list[Stage], mau: Mapping[str, Any]) -> dict[str, Figure]:
    one = mau["mau_stages"][0]
    in_one_stage = {
        "stateful_alus": one["meter_alus"]["nAlus"],
        "sram_blocks": one["rams"]["nRows"] * one["rams"]["nColumns"],
        "map_rams": one["map_rams"]["nRows"] * one["map_rams"]["nUnits"],
        "tcam_blocks": one["tcams"]["nRows"] * one["tcams"]["nColumns"],
        "logical_tables": one["logical_tables"]["size"],
    }
    return {
        name: Figure(sum(getattr(stage, name) for stage in stages), available * mau["nStages"])
        for name, available in in_one_stage.items()
    }


def _stages_of_each_gress(context: Mapping[str, Any], available: int) -> dict[str, Figure]:
    used = {"ingress": 0, "egress": 0}
    for table in context["tables"]:
        for part in table.get("match_attributes", {}).get("stage_tables", []):
            used[table["direction"]] = max(used[table["direction"]], part["stage_number"] + 1)
    return {f"{gress}_stages": Figure(stages, available) for gress, stages in used.items()}


def _containers(phv: Mapping[str, Any], available: Mapping[str, Any]) -> dict[str, Figure]:
    figures = {}
    for kind, name in (("normal", "phv"), ("tagalong", "tagalong")):
        for group in available.get(kind, []):
            width = group["width"]
            used = sum(one["container_type"] == kind and one["bit_width"] == width for one in phv["containers"])
            figures[f"{name}_{width}_bit"] = Figure(used, group["units"])
    return figures
