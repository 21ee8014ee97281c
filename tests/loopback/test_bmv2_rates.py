"""The rates of contributions on BMv2 can be measured; the rates themselves depend on the machine."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("simple_switch_grpc") is None,
    reason="skipped: needs root and simple_switch_grpc",
)
def test_contributions_with_and_without_values(figure: Callable[[str], None]) -> None:
    command = [sys.executable, "-m", "ptf_tests.rates", "--values", "256", "--samples", "1", "--phases", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = re.search(
        r"^bmv2, 256 values: [1-9]\d* contributions with values per CPU second, [1-9].*", done.stdout, re.M
    )
    assert found, done.stdout
    figure(found[0])
