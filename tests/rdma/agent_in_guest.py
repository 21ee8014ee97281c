"""In the guest: an agent whose packets are messages of the card, and all ranks of jobs, one after another.

Its arguments are the address of the card's interface, and that of the controller. It says when the agent is there; then
for each line "JOB WORLD" it runs the ranks of a job, and says the digests of all that each rank has got. With a third
word, a number of seconds, the card's interface is down for that long while the ranks make their calls; with the word
"kill" the process of the last rank is killed, and the others make their calls without it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
from pathlib import Path
from threading import Thread

import switchml
from tests.rdma.calls import digests

RUN = Path("/run/switchml")
CONNECT = f"import sys; comm = switchml.connect(job=int(sys.argv[1]), rank=int(sys.argv[2]), agent='{RUN}/agent.sock')"
DEADLINE = 100.0


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


def run_rank(job: str, rank: int, world: int, found: dict[int, list[str]]) -> None:
    try:
        with switchml.connect(job=int(job), rank=rank, world_size=world, agent=RUN / "agent.sock") as comm:
            try:
                found[rank] = digests(comm)
            except switchml.WorldChanged:
                found[rank] = digests(comm)
    except Exception:
        found[rank] = [traceback.format_exc()]


def interrupt(seconds: float, ranks: list[Thread]) -> None:
    """Set the card's interface down for a time, which must end before the calls of the ranks do."""
    for state, then in (("down", seconds), ("up", 0.0)):
        subprocess.run(["ip", "link", "set", "eth0", state], check=True)
        assert all(rank.is_alive() for rank in ranks), f"the calls had ended when the link went {state}"
        time.sleep(then)  # the calls go on


def say(**report: object) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


def main() -> None:
    agent = start_agent(*sys.argv[1:])
    say(ready=True)
    for line in sys.stdin:
        job, world, *more = line.split()
        killed = more == ["kill"]
        found: dict[int, list[str]] = {}
        living = range(int(world) - killed)
        threads = [Thread(target=run_rank, args=(job, rank, int(world), found)) for rank in living]
        for thread in threads:
            thread.start()
        if killed:
            attach_and_die = f"import os, switchml; {CONNECT}; os.kill(os.getpid(), 9)"
            subprocess.run([sys.executable, "-c", attach_and_die, job, str(len(living))], check=False)
        elif more:
            interrupt(float(more[0]), threads)
        for thread in threads:
            thread.join()
        say(digests=[found[rank] for rank in living])
    agent.terminate()
    agent.wait(DEADLINE)


if __name__ == "__main__":
    main()
