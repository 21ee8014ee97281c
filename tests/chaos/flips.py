"""Flip bits one after the other, undetected by checksums, and count what the ranks report.

``contribution`` and ``result``: each bit of a packet to or from the switch; ``exponent``: each bit of a packet without
values, from which ranks get the common exponent; ``register``: each bit of a slot's registers after the first of two
ranks has contributed. Two ranks sum one chunk of integers or floats over UDP on a soft switch.
"""

from __future__ import annotations

import argparse
import select
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

import switchml
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, Kind, Verdict
from tests.support.collective_harness import Fabric, running_fabric

VALUES = 16
SLOTS = 2
POOL = 4096
CALL_SECONDS = 1.0
"""The timeout of a call: some flips let a slot wait forever."""
FIELDS = {
    0: "version", 1: "kind", 2: "job", 4: "worker", 5: "format", 6: "exponent", 8: "slot", 10: "count",
    12: "epoch", 14: "owner", 15: "flags", 16: "phase", 20: "chunk", 24: "check", 28: "secret", 32: "values",
}  # fmt: skip
Change = Callable[[bytes], bytes]


class Middle:
    """A relay between the agent and the switch, which can change one packet."""

    def __init__(self, switch_port: int) -> None:
        self._switch = ("127.0.0.1", switch_port)
        self._front = self._socket()  # the port that the agent uses as the switch's
        self.port = self._front.getsockname()[1]
        self._backs: dict[int, socket.socket] = {}  # by the agent's port: the port that the switch uses as the agent's
        self._unused: list[socket.socket] = []
        self._change: tuple[int, int, Change] | None = None
        self._ended, self._end = socket.socketpair()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @staticmethod
    def _socket() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind(("127.0.0.1", 0))
        return made

    def seen_port(self, agent_port: int) -> int:
        """Return the port that the switch uses for an agent's port."""
        with self._lock:
            back = self._backs.setdefault(agent_port, self._socket())
        self._end.send(b"+")
        return int(back.getsockname()[1])

    def change_one(self, kind: Kind, phase: int, change: Change) -> None:
        """Change the next packet of this kind and phase, of rank 0 if it is a contribution."""
        self._change = (kind, phase, change)

    def _changed(self, packet: bytes) -> bytes:
        if self._change is None:
            return packet
        kind, phase, change = self._change
        of_rank_0 = kind == Kind.RESULT or packet[4] == 0
        if packet[1] != kind or int.from_bytes(packet[16:20], "big") != phase or not of_rank_0:
            return packet
        self._change = None
        return change(packet)

    def _run(self) -> None:
        while True:
            with self._lock:
                agents = {back: port for port, back in self._backs.items()}
                while self._unused:
                    self._unused.pop().close()
            ready, _, _ = select.select([self._front, self._ended, *agents], [], [])
            for one in ready:
                if one is self._ended:
                    if one.recv(64).endswith(b"."):
                        return
                elif one is self._front:
                    packet, (_, port) = one.recvfrom(65536)
                    for back in (back for back, known in agents.items() if known == port):
                        back.sendto(self._changed(packet), self._switch)
                else:
                    self._front.sendto(self._changed(one.recv(65536)), ("127.0.0.1", agents[one]))

    def forget(self) -> None:
        """Close the sockets for agents' ports that are no longer used."""
        with self._lock:
            self._unused += self._backs.values()
            self._backs = {}
        self._end.send(b"+")

    def close(self) -> None:
        self._end.send(b".")
        self._thread.join(10)


class Trials:
    """Jobs of two ranks, one after the other, each with one flip."""

    def __init__(self, fabric: Fabric, middle: Middle, dtype: str, phase: int) -> None:
        self._fabric, self._middle, self._dtype, self._phase = fabric, middle, dtype, phase
        self._job = 0

    def one(self, kind: Kind | None, change: Change | None, between: Callable[[Fabric, int], None] | None) -> str:
        """Make one call and return its outcome: found, harmless, timed out or WRONG."""
        self._job += 1
        number, base = self._job, (self._job - 1) * SLOTS
        self._fabric.add_job(number, 2, slots=SLOTS)
        if kind is not None and change is not None:
            self._middle.change_one(kind, self._phase, change)
        generator = np.random.default_rng(number)
        arrays = [self._array(generator) for _ in range(2)]
        exact = arrays[0] + arrays[1]
        outcomes: list[str] = []

        def run(rank: int) -> None:
            with self._fabric.connect(rank, number, 2) as comm:
                try:
                    comm.all_reduce(arrays[rank], timeout=CALL_SECONDS)
                    good = np.allclose(arrays[rank], exact, rtol=1e-6, atol=1e-6)
                    outcomes.append("right" if good else "WRONG")
                except switchml.CollectiveTimeout:
                    outcomes.append("timed out")
                except switchml.SwitchMLError as error:
                    outcomes.append(type(error).__name__)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        threads[0].start()
        if between is not None:
            counted = number << 4 | Verdict.AGGREGATED
            end = time.monotonic() + 10
            while self._fabric.switch.read_job_counter(counted)[0] == 0 and time.monotonic() < end:
                time.sleep(0.0005)
            between(self._fabric, base * 2)
        threads[1].start()
        for thread in threads:
            thread.join(30)
        self._fabric.revoke(number, pb.REVOCATION_REASON_JOB_COMPLETED, message="the trial has ended")
        self._middle.forget()
        if "WRONG" in outcomes:
            return "WRONG"
        if all(outcome == "right" for outcome in outcomes):
            return "harmless"
        return "timed out" if "timed out" in outcomes else "found"

    def _array(self, generator: np.random.Generator) -> npt.NDArray[np.float32] | npt.NDArray[np.int32]:
        if self._dtype == "float32":
            return generator.normal(size=VALUES).astype(np.float32)
        return generator.integers(-(2**31), 2**31, VALUES, dtype=np.int32)


def flip(bit: int) -> Change:
    def change(packet: bytes) -> bytes:
        changed = bytearray(packet)
        changed[bit // 8] ^= 0x80 >> bit % 8
        return bytes(changed)

    return change


def field_of(bit: int) -> str:
    return FIELDS[max(at for at in FIELDS if at <= bit // 8)]


def register_flips() -> Iterator[tuple[str, Callable[[Fabric, int], None]]]:
    """Yield a flip for each bit of the registers of the first half of a job's first slot."""
    widths = {
        "slot_epoch": 16,
        "slot_phase": 32,
        "slot_bitmap": 2,
        "slot_filled": 1,
        "slot_exponent": 16,
        "slot_check": 32,
        "slot_next": 32,
    }
    widths |= {f"lane_{lane}": 32 for lane in range(VALUES)}
    for name, width in widths.items():
        for bit in range(width):

            def change(fabric: Fabric, index: int, name: str = name, bit: int = bit) -> None:
                fabric.switch.write_register(name, index, fabric.switch.read_register(name, index) ^ 1 << bit)

            yield ("values" if name.startswith("lane_") else name), change


def end_to_end(what: str, dtype: str, step: int) -> list[str]:
    """Return table rows with the outcomes of flips in each field; with `step` 8, every eighth bit is tried."""
    found: dict[str, Counter[str]] = {}
    packet_bits = 8 * (PROTOCOL_HEADER_BYTES + 4 * VALUES)
    cases: list[tuple[str, Kind | None, Change | None, Callable[[Fabric, int], None] | None]]
    if what == "register":
        cases = [(name, None, None, change) for name, change in register_flips()]
    else:
        kind = Kind.RESULT if what == "result" else Kind.CONTRIBUTION
        packet_bits = 8 * PROTOCOL_HEADER_BYTES if what == "exponent" else packet_bits
        cases = [(field_of(bit), kind, flip(bit), None) for bit in range(packet_bits)]
    cases = cases[::step]
    while cases:
        now, cases = cases[: POOL // SLOTS - 1], cases[POOL // SLOTS - 1 :]
        with (
            tempfile.TemporaryDirectory(prefix="swml-flips-") as directory,
            running_fabric(Path(directory), values=VALUES, pool=POOL) as fabric,
        ):
            middle = Middle(fabric.switch_udp_port)
            fabric.switch_udp_port, fabric.seen_port = middle.port, middle.seen_port
            phase = int(dtype == "float32" and what != "exponent")  # floats learn their exponent first
            trials = Trials(fabric, middle, dtype, phase)
            for name, kind_of_packet, change, between in now:
                found.setdefault(name, Counter())[trials.one(kind_of_packet, change, between)] += 1
            middle.close()
    rows = []
    for name, counts in found.items():
        cells = [counts[outcome] for outcome in ("found", "harmless", "timed out", "WRONG")]
        rows.append(f"| {what}, {dtype} | {name} | {sum(cells)} | {' | '.join(map(str, cells))} |")
    return rows


def main() -> int:
    """Return 1 if a flip caused a wrong sum that no rank noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    everything = ["contribution", "result", "exponent", "register"]
    parser.add_argument("what", nargs="*", default=everything, help="what to try")
    parser.add_argument("--dtype", choices=["int32", "float32"], action="append")
    parser.add_argument("--step", type=int, default=1, help="try only every STEP-th bit")
    options = parser.parse_args()
    rows = ["| flips | field | tried | found | harmless | timed out | wrong |", "|---|---|---|---|---|---|---|"]
    for what in options.what:
        for dtype in ["float32"] if what == "exponent" else options.dtype or ["int32", "float32"]:
            rows += end_to_end(what, dtype, options.step)
    print("\n".join(rows))
    return int(any(not row.endswith(" 0 |") for row in rows[2:]))


if __name__ == "__main__":
    sys.exit(main())
