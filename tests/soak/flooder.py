"""A malicious worker: floods a port with invalid packets at a fixed rate.

It prints its own UDP port, then reads lines from standard input. The first is a JSON object with the jobs to imitate.
Then `PORT RATE` begins a flood of RATE packets per second; `stop` ends it, and the answer has the number of packets and
the seconds.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import sys
import time
from dataclasses import replace

from ptf_tests.wire import Packet
from switchml.dataplane.constants import Format, Kind

KINDS = ("garbage", "runt", "bad version", "bad length", "wrong job", "forged RESULT", "stale epoch", "resend")
_PACKETS = 64  # that are sent repeatedly
_BURST_SECONDS = 0.001


def packets(own: dict[str, int], other: dict[str, int], values: int) -> list[bytes]:
    """Return packets of all kinds in equal parts; `own` is the job of this worker, `other` the neighbour's."""
    chance = random.Random(1)
    full = tuple(range(values))
    base = Packet(own["job"], 0, 2 * own["slot"], 0, own["epoch"], full, count=values, exponent=100)
    theirs = replace(base, job=other["job"], slot=2 * other["slot"], epoch=other["epoch"])
    made = []
    for number in range(_PACKETS):
        kind = KINDS[number % len(KINDS)]
        if kind == "garbage":
            made.append(chance.randbytes(chance.randrange(1, 4 * values)))
        elif kind == "runt":
            made.append(base.pack()[: chance.randrange(1, 30)])
        elif kind == "bad version":
            made.append(replace(base, version=7).pack())
        elif kind == "bad length":
            made.append(base.pack()[:-4])
        elif kind == "wrong job":
            made.append(theirs.pack())
        elif kind == "forged RESULT":
            made.append(replace(theirs, kind=Kind.RESULT, format=Format.INT32).pack())
        elif kind == "stale epoch":
            made.append(replace(base, epoch=own["epoch"] - 1 or 0xFFFF).pack())
        else:  # admitted, complete, and requested repeatedly
            made.append(base.pack())
    return made


def flood(sock: socket.socket, prepared: list[bytes], port: int, rate: float) -> None:
    began, sent = time.monotonic(), 0
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], _BURST_SECONDS)
        due = int((time.monotonic() - began) * rate)
        while sent < due:
            with contextlib.suppress(OSError):  # its buffer is full
                sock.sendto(prepared[sent % len(prepared)], ("127.0.0.1", port))
            sent += 1
        if readable:
            assert sys.stdin.readline().strip() == "stop"
            print(json.dumps({"sent": sent, "seconds": time.monotonic() - began}), flush=True)
            return


def main() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        print(sock.getsockname()[1], flush=True)
        whom = json.loads(sys.stdin.readline())
        prepared = packets(whom["own"], whom["other"], whom["values"])
        for line in sys.stdin:
            port, rate = line.split()
            flood(sock, prepared, int(port), float(rate))


main()
