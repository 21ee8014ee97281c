"""A short run of the benchmark of sparse tensors, whose ranks compare the sums with Gloo's."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "studies.omnireduce.sparse_tensors"]


def test_a_short_run_has_the_sums_of_gloo() -> None:
    small = ["--workers", "2", "--rounds", "2", "--rows", "5000", "--draws", "400"]
    run = subprocess.run([*PROGRAM, *small], check=False, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.match(r"Sparse tensor of 5,000 x 64, \d+ rows at any of 2 workers, over shm .* / switchml ", run.stdout)
