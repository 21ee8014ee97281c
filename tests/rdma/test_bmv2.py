"""Queue pairs of the guest's card through BMv2: the P4 program against the kernel's checks of every packet."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from switchml.dataplane.devices import built
from tests.rdma import agent_on_bmv2
from tests.rdma.guest import ROOT, SECONDS, Image
from tests.rdma.test_agent import over_udp

MISSING = "" if shutil.which("simple_switch_grpc") else "BMv2 (simple_switch_grpc) is not on PATH"


pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or bool(MISSING), reason=f"skipped: {MISSING or 'its namespaces take root'}"
)


def output(module: str, image: Image) -> str:
    """Return what a program prints that continues in namespaces."""
    command = [sys.executable, "-m", module, str(image.linux.parent)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_queue_pairs_through_bmv2(image: Image, figure: Callable[[str], None]) -> None:
    for line in output("tests.rdma.on_bmv2", image).splitlines():
        figure(line)


@pytest.mark.long
@pytest.mark.skipif(not built("rdma"), reason="skipped: built without libibverbs-dev")
def test_an_agent_and_one_over_udp_through_bmv2(
    tmp_path: Path, image: Image, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str], None]
) -> None:
    monkeypatch.setitem(os.environ, "SWITCHML_DIRECT", "0")
    report = json.loads(output("tests.rdma.agent_on_bmv2", image))
    values, world, elements = agent_on_bmv2.VALUES, agent_on_bmv2.WORLD, agent_on_bmv2.ELEMENTS
    assert [report["digests"]] == over_udp(tmp_path, values, [world], elements)
    assert report["drops"].get("bad_icrc", 0) == 0
    figure(f"ranks {report['there']} of {world} in the guest; drops at BMv2: {report['drops']}")
