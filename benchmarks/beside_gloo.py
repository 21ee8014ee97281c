"""All-reduce through SwitchML's embedded fabric beside PyTorch's Gloo, taking turns on this machine.

Both verify every result. Prints a table: medians over all iterations of all repetitions, and the median of the
ratios of the repetitions (Gloo's time / SwitchML's time).

    python benchmarks/beside_gloo.py --workers 8 --megabytes 64 --torch-python PATH
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

WORKER = Path(__file__).with_name("allreduce_worker.py")
DEADLINE = 300  # seconds for one run of either


def worker_arguments(backend: str, options: argparse.Namespace, output: Path) -> list[str]:
    """Return what follows the interpreter on a worker's command line."""
    elements = options.megabytes * (1 << 20) // 4
    arguments = [str(WORKER), backend, "--elements", str(elements), "--iterations", str(options.iterations)]
    return [*arguments, "--output", str(output)]


def run_switchml(options: argparse.Namespace, directory: Path) -> list[float]:
    """Return the seconds of each all-reduce of one job."""
    output = directory / "switchml.json"
    control = Path(sysconfig.get_path("scripts")) / "switchml-ctl"
    command = [str(control), "--run-dir", str(directory / "run")]
    silent = {"check": True, "timeout": DEADLINE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*command, "up", "--transport", options.transport], **silent)
    try:
        status = subprocess.run([*command, "status", "--json"], check=True, timeout=DEADLINE, stdout=subprocess.PIPE)
        for process in json.loads(status.stdout)["processes"]:
            with contextlib.suppress(OSError):  # as allreduce_worker.take_share
                Path(f"/proc/{process['pid']}/autogroup").write_text("-20", encoding="ascii")
        worker = [sys.executable, *worker_arguments("switchml", options, output)]
        job = ["job", "start", "--workers", str(options.workers), "--json", "--", *worker]
        subprocess.run([*command, *job], **silent)
    finally:
        subprocess.run([*command, "down"], **silent)
    return list(json.loads(output.read_text(encoding="utf-8"))["seconds"])


def run_gloo(options: argparse.Namespace, directory: Path) -> list[float]:
    """Return the seconds of each all-reduce of one process group."""
    output = directory / "gloo.json"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = []
    for rank in range(options.workers):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(options.workers),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        command = [options.torch_python, *worker_arguments("gloo", options, output)]
        workers.append(subprocess.Popen(command, env=environment, start_new_session=True))
    try:
        statuses = [worker.wait(DEADLINE) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    if any(statuses):
        raise SystemExit(f"Gloo workers ended with {statuses}")
    return list(json.loads(output.read_text(encoding="utf-8"))["seconds"])


def main() -> None:
    """Run both in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--transport", choices=("shm", "udp"), default="shm")
    parser.add_argument("--torch-python", default=sys.executable, help="an interpreter that has PyTorch and numpy")
    options = parser.parse_args()

    seconds: dict[str, list[float]] = {"switchml": [], "gloo": []}
    ratios = []
    for _ in range(options.repetitions):
        with tempfile.TemporaryDirectory(prefix="sml") as directory:
            ours = run_switchml(options, Path(directory))
            theirs = run_gloo(options, Path(directory))
        seconds["switchml"] += ours
        seconds["gloo"] += theirs
        ratios.append(statistics.median(theirs) / statistics.median(ours))

    elements = options.megabytes * (1 << 20) / 4
    print(
        f"float32 all-reduce, {options.workers} workers, {options.megabytes} MiB, {options.transport}, "
        f"{options.repetitions} repetitions"
    )
    print(f"{'':10} {'median ms':>10} {'min ms':>8} {'max ms':>8} {'Melem/s/worker':>15}")
    for name, times in seconds.items():
        median = statistics.median(times)
        figures = (
            f"{median * 1e3:10.1f} {min(times) * 1e3:8.1f} {max(times) * 1e3:8.1f} {elements / median / 1e6:15.1f}"
        )
        print(f"{name:10} {figures}")
    print(f"Gloo's time / SwitchML's time: median {statistics.median(ratios):.2f} of {[round(r, 2) for r in ratios]}")


if __name__ == "__main__":
    main()
