"""Measure the effect on its neighbour of a job whose worker floods the switch: `python -m tests.soak.flood`.

The neighbour is a job of two ranks that repeatedly sums a tensor. It runs in turns, whose order changes: alone, during
a flood to a closed UDP port, and during the same flood to the switch's port. The flood has a fixed rate and comes from
a socket that the switch has admitted for another job: garbage, runts, packets of a wrong version or length, of the
neighbour's job, of an old epoch, forged RESULTs, and contributions that repeatedly ask for a result. The ratio of the
neighbour's times, switch to closed port, is computed for each turn. The exit status is 1 if the median of these ratios
is above 1.1.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from switchml.benchmarks.options import TRANSPORTS
from switchml.benchmarks.ranks import RankGroup
from switchml.benchmarks.systems import SwitchML, own_fabric, work_directory
from switchml.benchmarks.workers.counters import take_share
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.controller_harness import ScriptedAgent

STATES = ("quiet", "closed port", "switch")
_SETTLE_SECONDS = 0.05


class Flooder:
    """The process that floods; the switch has admitted it as the only rank of a separate job."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.flooder"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        take_share(self._process.pid)  # otherwise it would not keep its rate with other load
        self.port = int(self._read())
        self.rates: list[float] = []

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the flooder has ended")
        return line

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def prepare(self, own: pb.Job, other: pb.Job) -> None:
        whom = {
            name: {"job": job.id, "slot": job.switches[0].slot_base, "epoch": job.epoch}
            for name, job in (("own", own), ("other", other))
        }
        self._say(json.dumps(whom | {"values": own.values_per_packet}))

    @contextmanager
    def flood(self, port: int, rate: float) -> Iterator[None]:
        self._say(f"{port} {rate}")
        time.sleep(_SETTLE_SECONDS)
        try:
            yield
        finally:
            self._say("stop")
            told = json.loads(self._read())
            self.rates.append(told["sent"] / told["seconds"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def flooder_beside(system: SwitchML, neighbour: pb.Job) -> Iterator[tuple[Flooder, int]]:
    """Provide a flooder that the switch has admitted, and the switch's UDP port."""
    flooder = Flooder()
    try:
        agent = ScriptedAgent(system.fabric.controller, name="flooder", switch_port=1, max_ranks=1)

        def ready(assignment: pb.Assignment) -> pb.AgentMessage:
            answer = pb.AssignmentReady(job=assignment.job, epoch=assignment.epoch)
            answer.endpoints.add(rank=0, address="127.0.0.1", udp_port=flooder.port)
            return pb.AgentMessage(assignment_ready=answer)

        agent.answer = ready
        with agent, system.client() as client:
            key = pb.RankAnnouncement(announcement=1, key="flood", rank=0, world_size=1, wait_seconds=30, slots=2)
            agent.send(pb.AgentMessage(rank_announcement=key))
            agent.wait_for("activation")
            own = next(job for job in client.list_jobs() if job.name.startswith("flood-"))
            [switch] = client.list_switches()
            flooder.prepare(own, neighbour)
            yield flooder, switch.data_udp_port
            client.stop_job(own.id)
    finally:
        flooder.close()


def closed_port() -> int:
    """Return a UDP port on which no socket listens, outside the range of ports that the kernel assigns."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in range(low - 1, 1024, -1):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise SystemExit("no UDP port is free")


def time_of_a_call(group: RankGroup, elements: int, calls: int) -> float:
    """Return the median, over calls, of the slowest rank's seconds; the ranks check their sums."""
    answers = group.command(f"all_reduce {calls} 2 {elements}")
    slowest: list[float] = [max(of_ranks) for of_ranks in zip(*(a["seconds"] for a in answers), strict=True)]
    return statistics.median(slowest)


def measure(system: SwitchML, group: RankGroup, options: argparse.Namespace) -> tuple[list[dict[str, float]], Any]:
    """Return the seconds of a call in each state by turn, the rates of the floods, and the drops by reason."""
    chance = random.Random(options.seed)
    with system.client() as client:
        [neighbour] = client.list_jobs()
    nobody = closed_port()
    turns = []
    with flooder_beside(system, neighbour) as (flooder, port):
        time_of_a_call(group, options.elements, options.calls)
        for _ in range(options.turns):
            times = {}
            for state in chance.sample(STATES, len(STATES)):
                if state == "quiet":
                    times[state] = time_of_a_call(group, options.elements, options.calls)
                    continue
                with flooder.flood(port if state == "switch" else nobody, options.rate):
                    times[state] = time_of_a_call(group, options.elements, options.calls)
            turns.append(times)
        with system.client() as client:
            dropped = {name: count for name, count in client.show_switch().drop_reasons.items() if count}
        return turns, (statistics.median(flooder.rates), dropped)


def main() -> int:
    """Return 0 if the median ratio is within the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=10_000, help="packets a second")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--calls", type=int, default=60, help="all-reduces in each turn")
    parser.add_argument("--elements", type=int, default=250_000, help="float32 elements of each")
    parser.add_argument("--transport", choices=TRANSPORTS, action="append", help="the neighbour's; by default each")
    parser.add_argument(
        "--limit", type=float, default=1.1, help="for the median ratio; use a higher one on a machine with other load"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kept = True
    print("| neighbour over | alone | flood to a closed port | flood to the switch | switch : closed, quartiles |")
    print("|---|---|---|---|---|")
    for transport in options.transport or TRANSPORTS:
        with (
            work_directory() as directory,
            own_fabric(transport, directory) as system,
            system.group(2, directory) as group,
        ):
            turns, (rate, dropped) = measure(system, group, options)
        medians = [statistics.median(turn[state] for turn in turns) * 1e3 for state in STATES]
        ratios = sorted(turn["switch"] / turn["closed port"] for turn in turns)
        beside = statistics.median(turn["closed port"] / turn["quiet"] for turn in turns)
        ratio, kept_here = statistics.median(ratios), statistics.median(ratios) <= options.limit
        low, high = ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]
        print(
            f"| {transport} | {medians[0]:.2f} ms | {medians[1]:.2f} ms ({beside:.2f} of alone) | {medians[2]:.2f} ms"
            f" | **{ratio:.3f}** ({low:.3f} to {high:.3f}){'' if kept_here else ': ABOVE THE LIMIT'} |"
        )
        print(f"{transport}: {rate:.0f} packets/s; dropped: {dropped}", file=sys.stderr)
        kept = kept and kept_here
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
