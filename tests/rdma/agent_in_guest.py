"""In the guest: an agent whose packets are messages of the card, and ranks of jobs, one job after another.

Its arguments are the address of the card's interface, that of the controller, and the number of elements of each call.
It says when the agent is there; then for each line "JOB WORLD RANKS EVENT" it runs those ranks of a job, and says the
digests of all that each rank has got. The events:

none       the ranks make their calls
down       the card's interface is down for SECONDS_DOWN while they do
kill       the process of the last rank is killed, and the others make their calls without it
unbind     the card is lost while the ranks repeat their calls until these fail; it says how, and with which status the
flush      agent has ended
train      the ranks train with PyTorch instead
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, Thread

import switchml
from tests.rdma import training
from tests.rdma.calls import digests

RUN = Path("/run/switchml")
CONNECT = f"import sys; comm = switchml.connect(job=int(sys.argv[1]), rank=int(sys.argv[2]), agent='{RUN}/agent.sock')"
DEADLINE = 100.0
SECONDS_DOWN = 3.0
UNBIND = "basename $(readlink /sys/class/net/eth0/device) > /sys/bus/virtio/drivers/virtio_net/unbind"
LOSSES = {"unbind": ("sh", "-c", UNBIND), "flush": ("ip", "address", "flush", "dev", "eth0")}


def start_agent(address: str, controller: str) -> subprocess.Popen[bytes]:
    RUN.mkdir()
    command = [sys.executable, "-m", "switchml.host_agent.daemon", "--name", "guest", "--controller", controller]
    command += ["--insecure", "--address", address, "--socket", str(RUN / "agent.sock"), "--transport", "rdma"]
    agent = subprocess.Popen([*command, "--device", "rxe0", "--ready-file", str(RUN / "ready")])
    end = time.monotonic() + DEADLINE
    while not (RUN / "ready").exists():
        assert agent.poll() is None, "the agent has ended"
        assert time.monotonic() < end, f"the agent is not ready after {DEADLINE} s"
        time.sleep(0.05)
    return agent


@dataclass(frozen=True)
class Job:
    """A job with ranks here."""

    number: int
    world: int
    ranks: list[int]
    elements: int

    def connect(self, rank: int) -> switchml.Communicator:
        """Attach to a rank."""
        return switchml.connect(job=self.number, rank=rank, world_size=self.world, agent=RUN / "agent.sock")


def run_rank(job: Job, rank: int, found: dict[int, list[str]]) -> None:
    try:
        with job.connect(rank) as comm:
            try:
                found[rank] = digests(comm, job.elements)
            except switchml.WorldChanged:
                found[rank] = digests(comm, job.elements)
    except Exception:
        found[rank] = [traceback.format_exc()]


def run(job: Job, event: str) -> list[list[str]]:
    found: dict[int, list[str]] = {}
    living = job.ranks[:-1] if event == "kill" else job.ranks
    threads = [Thread(target=run_rank, args=(job, rank, found)) for rank in living]
    for thread in threads:
        thread.start()
    if event == "kill":
        attach_and_die = f"import os, switchml; {CONNECT}; os.kill(os.getpid(), 9)"
        subprocess.run([sys.executable, "-c", attach_and_die, str(job.number), str(job.ranks[-1])], check=False)
    elif event == "down":
        interrupt(threads)
    for thread in threads:
        thread.join()
    return [found[rank] for rank in living]


def interrupt(ranks: list[Thread]) -> None:
    """Set the card's interface down for a time, which must end before the calls of the ranks do."""
    for state, seconds in (("down", SECONDS_DOWN), ("up", 0.0)):
        subprocess.run(["ip", "link", "set", "eth0", state], check=True)
        assert all(rank.is_alive() for rank in ranks), f"the calls had ended when the link went {state}"
        time.sleep(seconds)  # the calls go on


def repeat_until_lost(job: Job, rank: int, found: dict[int, list[str]], begun: Barrier) -> None:
    try:
        with job.connect(rank) as comm:
            digests(comm, job.elements)
            begun.wait(DEADLINE)
            while True:
                digests(comm, job.elements)
    except switchml.SwitchMLError as error:
        found[rank] = [type(error).__name__, str(error)]


def lose_card(job: Job, loss: str) -> dict[int, list[str]]:
    """Return the error that each rank has got."""
    found: dict[int, list[str]] = {}
    begun = Barrier(len(job.ranks) + 1)
    ranks = [Thread(target=repeat_until_lost, args=(job, rank, found, begun), daemon=True) for rank in job.ranks]
    for rank in ranks:
        rank.start()
    begun.wait(DEADLINE)
    # Not waited for: the kernel may remove an interface only when nothing uses it any more.
    subprocess.Popen(LOSSES[loss])
    for rank in ranks:
        rank.join(DEADLINE)
    return found


def say(**report: object) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


def main() -> None:
    address, controller, elements = sys.argv[1:]
    agent = start_agent(address, controller)
    say(ready=True)
    for line in sys.stdin:
        number, world, ranks, event = line.split()
        job = Job(int(number), int(world), [int(rank) for rank in ranks.split(",")], int(elements))
        if event in LOSSES:
            say(errors=lose_card(job, event), agent=agent.wait(DEADLINE))
            return
        if event == "train":
            say(digests=training.run_ranks(job.number, job.world, RUN / "agent.sock"))
        else:
            say(digests=run(job, event))
    agent.terminate()
    agent.wait(DEADLINE)


if __name__ == "__main__":
    main()
