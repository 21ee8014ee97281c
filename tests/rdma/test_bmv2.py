"""Queue pairs of the guest's card through BMv2: the P4 program against the kernel's checks of every packet."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.rdma.guest import ROOT, SECONDS, Image

MISSING = "" if shutil.which("simple_switch_grpc") else "BMv2 (simple_switch_grpc) is not on PATH"


@pytest.mark.skipif(os.geteuid() != 0 or bool(MISSING), reason=f"skipped: {MISSING or 'its namespaces take root'}")
def test_queue_pairs_through_bmv2(image: Image, figure: Callable[[str], None]) -> None:
    command = [sys.executable, "-m", "tests.rdma.on_bmv2", str(image.linux.parent)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in done.stdout.splitlines():
        figure(line)
