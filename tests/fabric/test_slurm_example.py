"""The batch script of examples/slurm, with its tasks run here as Slurm would run them on a node."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fabric_harness import WORKERS, Ctl

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
STEP = Path(__file__).parent / "slurm_step.py"
TASKS = 3


@pytest.mark.skipif(shutil.which("ip") is None, reason="skipped: ip (iproute2) not found")
@pytest.mark.parametrize("crash", [False, True])
def test_ranks_meet_at_the_agents_that_the_script_starts(fabric: Ctl, tmp_path: Path, crash: bool) -> None:
    for name in ("srun", "scontrol"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} "{tmp_path / "link" / name}" "$@"\n')
        program.chmod(0o755)
        (tmp_path / "link").mkdir(exist_ok=True)
        (tmp_path / "link" / name).symlink_to(STEP)
    job_id = str(os.getpid())
    run_dir = Path("/tmp") / f"switchml-{job_id}"
    environment = {name: value for name, value in fabric.environment.items() if not name.startswith("SWITCHML_")}
    environment |= {
        "PATH": f"{tmp_path}:{environment['PATH']}",
        "SLURM_JOB_ID": job_id,
        "SLURM_JOB_NODELIST": "node[1-1]",
        "SLURM_NNODES": "1",
        "SLURM_NTASKS": str(TASKS),
        "SLURM_SUBMIT_DIR": str(EXAMPLES),
        "SWITCHML_CONTROLLER": fabric.json("status")["controller"],
        "SWITCHML_SWITCH_ADDRESS": "127.0.0.1",
    }
    command = ["bash", str(EXAMPLES / "ranks.sbatch"), sys.executable, str(WORKERS / "meets.py")]
    if crash:
        command += ["--crash", "1"]
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=60)
        said = [json.loads(line) for line in done.stdout.splitlines()]
        if crash:
            assert done.returncode != 0
            assert [one["lost"] for one in said] == [[1]] * (TASKS - 1)
        else:
            assert done.returncode == 0
            assert [one["sum"] for one in said] == [6] * TASKS
        job = fabric.json("job", "show", said[0]["job"])
        assert {rank["agent"] for rank in job["ranks"]} == {f"{os.uname().nodename}-{job_id}"}
        # The agent has ended with the script, and its directory was closed to other users.
        assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
        assert list(run_dir.iterdir()) == []
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
