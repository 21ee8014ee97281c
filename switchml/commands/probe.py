"""The commands of switchml-ctl that measure the paths between hosts, and order ranks by them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from switchml.commands.command import Command, Parsed
from switchml.commands.result import Result
from switchml.commands.session import CommandSession
from switchml.commands.standard_streams import note

if TYPE_CHECKING:
    from switchml.ops.probe_matrix import ProbedHost, ProbeMatrix

__all__ = ["Ordered", "Probed", "found_order", "order", "probe"]

ALGORITHMS = ("ring", "halving-doubling")


@dataclasses.dataclass(frozen=True)
class Probed(Result):
    """The matrix of a probe, the file that has it, and the agents that were left out, with the reasons."""

    matrix: ProbeMatrix
    file: Path
    left_out: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {**self.matrix.as_dict(), "file": str(self.file), "left_out": self.left_out}


@dataclasses.dataclass(frozen=True)
class Ordered(Result):
    """An order of hosts; `groups` are those that share a leaf, or one group with all.

    `cost` and `given_cost` are those of this order and of the probe's; of leaves, the mean costs within and between.
    """

    purpose: str
    groups: Sequence[Sequence[ProbedHost]]
    shown: Literal["agent", "host", "address"]
    costs: dict[str, float]
    unit: str

    def name(self, host: ProbedHost) -> str:
        """Return the name under which a host is shown."""
        return host.name if self.shown == "agent" else getattr(host, self.shown)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        names = [[self.name(host) for host in group] for group in self.groups]
        order = [name for group in names for name in group]
        groups = {"leaves": names} if self.purpose == "leaves" else {}
        return {"for": self.purpose, "order": order, **groups, "costs": self.costs, "unit": self.unit}


def _size(text: str) -> int:
    from switchml.benchmarks.options import sizes
    from switchml.common.probe_bounds import MOST_BYTES

    [size] = sizes(text)
    if size > MOST_BYTES:
        raise ValueError(f"{text} is too much; a probe sends at most {MOST_BYTES >> 20}MiB between two agents")
    return size


@click.command(
    "probe", cls=Command, epilog="\b\nExamples:\n  switchml-ctl probe\n  switchml-ctl probe --bytes 8MiB --json"
)
@click.option(
    "--bytes", "size", type=Parsed("size", _size), default=0, metavar="SIZE",
    help="Measure rates too, by sending this much in each direction: 8MiB.  [default: round trips alone]",
)  # fmt: skip
@click.pass_obj
def probe(session: CommandSession, size: int) -> Probed:
    """Let the agents measure the paths between each two of them, and keep the matrix for `order`.

    It takes a round for each agent, and needs a fabric without jobs: the packets of a job would be measured as well.
    The matrix is in probe.json in the run directory.
    """
    from switchml.ops.probe_matrix import FILE_NAME, ProbeMatrix

    with session.client() as client:
        result = client.probe_agents(size)
    matrix = ProbeMatrix.of(result)
    directory = session.run_directory()
    directory.create()
    file = directory.path / FILE_NAME
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(matrix.as_dict()) + "\n", encoding="utf-8")
    draft.replace(file)
    return Probed(matrix, file, {agent.name: agent.reason for agent in result.left_out})


@click.command(
    "order",
    cls=Command,
    epilog="""\b
Examples:
  switchml-ctl order --for ring --names host > hosts
  switchml-ctl order --for halving-doubling --matrix probe.json
  switchml-ctl order --for leaves --json""",
)
@click.option(
    "--for", "purpose", type=click.Choice([*ALGORITHMS, "leaves"]), required=True,
    help="The algorithm of the collectives; or leaves: which hosts share a switch.",
)  # fmt: skip
@click.option(
    "--matrix", type=click.Path(path_type=Path), metavar="FILE",
    help="The file with the matrix of a probe.  [default: probe.json in the run directory]",
)  # fmt: skip
@click.option(
    "--names", type=click.Choice(["agent", "host", "address"]), default="agent", show_default=True,
    help="The name of each host that is printed.",
)  # fmt: skip
@click.pass_obj
def order(
    session: CommandSession, purpose: str, matrix: Path | None, names: Literal["agent", "host", "address"]
) -> Ordered:
    """Print the hosts in the order in which ranks should be given to them, one in a line, as in a host file.

    With `--for leaves`, print the hosts of each leaf in a line. Costs are times for a MiB if the probe has measured
    rates, otherwise round trips; they are printed on standard error.
    """
    from switchml.ops import rank_order

    if purpose in ALGORITHMS:
        found, hosts, costs = found_order(session, purpose, matrix)
        return Ordered(purpose, [hosts], names, costs, found.unit)
    found = _matrix(session, matrix)
    paths = found.costs()
    groups = rank_order.leaves(paths)
    costs = rank_order.means(paths, groups)
    return Ordered(purpose, [[found.hosts[host] for host in group] for group in groups], names, costs, found.unit)


def found_order(
    session: CommandSession, algorithm: str, file: Path | None = None
) -> tuple[ProbeMatrix, list[ProbedHost], dict[str, float]]:
    """Return the matrix of a file or of the run directory, its hosts in the best order, and what orders cost."""
    from switchml.ops import rank_order

    found = _matrix(session, file)
    paths = found.costs()
    best = rank_order.best_order(algorithm, paths)
    orders = {"found": best, "given": range(len(best))}
    costs = {name: rank_order.cost(algorithm, paths, each) for name, each in orders.items()}
    return found, [found.hosts[host] for host in best], costs


def _matrix(session: CommandSession, file: Path | None) -> ProbeMatrix:
    from switchml.ops.probe_matrix import FILE_NAME, load

    found = load(file or session.run_directory().path / FILE_NAME)
    for remark in found.remarks():
        note(remark)
    return found
