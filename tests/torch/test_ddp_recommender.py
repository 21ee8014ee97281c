"""The benchmark of a recommender: a short run, and the comparison of its loss curves."""

import subprocess
import sys
from pathlib import Path

from studies.omnireduce.recommender import other_curves

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "studies.omnireduce.recommender"]


def test_a_short_run_has_the_losses_of_gloo() -> None:
    small = ["--workers", "2", "--rounds", "3", "--rows", "5000", "--dimension", "64"]
    run = subprocess.run([*PROGRAM, *small], check=False, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    assert lines[0].startswith("Recommender with a table of 5,000 x 64 (1.3 MB) under DDP, 2 workers over shm")
    gloo, ours, auto, sparse_gloo, sparse = lines[2:7]
    for line, name in ((gloo, "gloo, dense"), (ours, "switchml, dense"), (auto, "switchml, skip_zeros=auto, dense")):
        assert line.startswith(f"{name} gradients ")
    for line, name in ((sparse_gloo, "gloo, sparse"), (sparse, "switchml, sparse")):
        assert line.startswith(f"{name} gradients ")
    assert gloo.split()[-3] == sparse_gloo.split()[-3] == "1.00"  # the ratio to themselves
    assert lines[7] == "The loss curves are those of Gloo."


def test_another_loss_curve_is_found() -> None:
    ways = {
        "gloo, dense gradients": {"losses": [0.7, 0.5]},
        "switchml, dense gradients": {"losses": [0.7, 0.50001]},
        "switchml, sparse gradients": {"losses": [0.7, 0.51]},
    }
    assert other_curves(ways) == ["switchml, sparse gradients"]
