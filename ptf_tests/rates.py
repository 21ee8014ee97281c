"""Measure the rates of contributions that BMv2 aggregates: ``python -m ptf_tests.rates``.

Those with values are compared with those without, or with ``--floats`` integers with floats.

All of them enter through one port, and no phase is completed, so that no RESULT takes part. Times are the CPU time of
BMv2, so that other programs matter little. They include a marker frame for each burst (barrier.py).
"""

from __future__ import annotations

import logging
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import click

from ptf_tests import namespace
from ptf_tests.barrier import Barrier, marker_entities
from ptf_tests.frames import contribution_frame
from ptf_tests.job import Job, default_host
from ptf_tests.open_control import open_control
from ptf_tests.open_ports import open_ports
from ptf_tests.targets import HOST_PORTS, Bmv2, Bmv2Floats, Target, TargetUnavailable, veth_names
from switchml.dataplane.constants import Format, Verdict

_SENDERS = 8
"""Ranks that contribute to each phase, in one burst; one more rank never does."""


@click.command()
@click.option("--values", type=int, default=256, show_default=True, help="Values per packet: 64 or 256.")
@click.option("--floats", is_flag=True, help="Compare floats with integers, in packets of 64 values.")
@click.option(
    "--samples", type=click.IntRange(1), default=9, show_default=True, help="Number of samples of each kind, in turns."
)
@click.option("--phases", type=click.IntRange(1), default=20, show_default=True, help="Phases in a sample.")
def main(values: int, floats: bool, samples: int, phases: int) -> None:
    """Print the rates of two kinds of contributions, and the median of the ratios of their samples."""
    kind = Bmv2Floats if floats else Bmv2
    values = kind.values[0] if floats else values
    if values not in Bmv2.values:
        raise click.BadParameter(f"BMv2 has {' or '.join(map(str, Bmv2.values))} values per packet, not {values}")
    try:
        Bmv2.check_available()
    except TargetUnavailable as reason:
        click.echo(f"skipped: {reason}")
        return
    arguments = ["--values", str(values), "--samples", str(samples), "--phases", str(phases)]
    arguments += ["--floats"] if floats else []
    namespace.enter("ptf_tests.rates", arguments)
    namespace.make_veth_pairs(veth_names())
    logging.getLogger("dataplane").setLevel(logging.ERROR)
    first, second = ("floats", "integers") if floats else ("values", "no values")
    with _rates(kind, values) as rates:
        pairs = [(rates.sample(phases, first), rates.sample(phases, second)) for _ in range(samples)]
    slow, fast = (statistics.median(rate) for rate in zip(*pairs, strict=True))
    ratio = statistics.median(of_second / of_first for of_first, of_second in pairs)
    found = f"{slow:.0f} contributions with {first} per CPU second, {fast:.0f} with {second}, {ratio:.2f} times as many"
    click.echo(f"{kind.name}, {values} values: {found}")


@contextmanager
def _rates(kind: type[Bmv2], values: int) -> Iterator[Rates]:
    """Start BMv2 with a pipeline of this many values."""
    with tempfile.TemporaryDirectory(prefix="switchml-rates-") as directory, kind(Path(directory)) as target:
        description = target.describe(values)
        with open_control(description) as control, open_ports(description) as dataplane:
            control.load()
            control.insert(*marker_entities())
            barrier = Barrier(dataplane)
            barrier.emitted()
            hosts = tuple(default_host(rank).moved(port=HOST_PORTS[0]) for rank in range(_SENDERS + 1))
            job = Job(1, 1, hosts, values)
            control.insert(*job.entities())

            def aggregated() -> int:
                return control.counts([job.id]).verdicts.get(job.id << 4 | Verdict.AGGREGATED, (0, 0))[0]

            yield Rates(target, barrier, job, aggregated)


class Rates:
    """A job of ranks at one port, and the rates at which the switch takes their contributions.

    `aggregated` returns how many of them the switch has counted.
    """

    def __init__(self, target: Target, barrier: Barrier, job: Job, aggregated: Callable[[], int]) -> None:
        self._target, self._barrier, self._job, self._aggregated = target, barrier, job, aggregated
        self._phases = count()

    def sample(self, phases: int, contents: str) -> float:
        """Return the contributions of some phases per CPU second. Raises RuntimeError if the switch has lost some."""
        bursts = [self._burst(next(self._phases), contents) for _ in range(phases)]
        before = self._aggregated()
        start = self._target.cpu_seconds()
        for burst in bursts:
            for frame in burst:
                self._barrier.send(HOST_PORTS[0], frame)
            self._barrier.processed()
        seconds = self._target.cpu_seconds() - start
        sent = phases * _SENDERS
        if (aggregated := self._aggregated() - before) != sent:
            raise RuntimeError(f"the switch has aggregated {aggregated} of {sent} contributions")
        return sent / seconds

    def _burst(self, phase: int, contents: str) -> Sequence[bytes]:
        """Return the contributions of all ranks but one; slots take turns, as those of a stream."""
        make = self._job.without_values if contents == "no values" else self._job.packet
        number = Format.FLOAT32 if contents == "floats" else Format.INT32
        slot = phase % self._job.slots
        packets = [make(rank, slot, phase // self._job.slots, format=number) for rank in range(_SENDERS)]
        return [contribution_frame(packet, self._job.hosts[packet.worker]) for packet in packets]


if __name__ == "__main__":
    main()
