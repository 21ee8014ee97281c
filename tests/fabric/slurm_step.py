"""A substitute for Slurm's programs on one node: `srun` runs a step's tasks here, `scontrol` names the node.

The tests link it under these two names. Slurm itself cannot run without its daemons.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path


def srun() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--overlap", action="store_true", required=True)  # otherwise steps wait for each other
    parser.add_argument("--nodes", type=int, default=1, choices=[1])
    parser.add_argument("--ntasks", type=int, default=int(os.environ["SLURM_NTASKS"]))
    parser.add_argument("--ntasks-per-node", type=int)
    parser.add_argument("--kill-on-bad-exit", type=int, choices=[1])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    assert options.ntasks_per_node in (None, options.ntasks)
    tasks = [
        subprocess.Popen(options.command, env={**os.environ, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)})
        for task in range(options.ntasks)
    ]

    def terminate(*_: object) -> None:
        for task in tasks:
            task.terminate()

    signal.signal(signal.SIGTERM, terminate)
    return max(abs(task.wait()) for task in tasks)


def scontrol() -> int:
    assert sys.argv[1:] == ["show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
    sys.stdout.write(f"{os.uname().nodename}\n")
    return 0


sys.exit(srun() if Path(sys.argv[0]).name == "srun" else scontrol())
