"""The page of `switchml-ctl top --web` in a browser, with 64 ranks on a tree of three switches; one of them is killed.

With --pictures, docs/operate/top-web.png is written again.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.browser import BrowserPage, browser_page, needs_browser
from tests.support.fabric_harness import Ctl

RANKS, AGENTS = 64, 8
OTHERS = 16  # ranks of a second job, which goes on
PICTURE = Path(__file__).parents[2] / "docs" / "operate" / "top-web.png"
MOST_BYTES = 200_000
DEADLINE = 120.0

# Several ranks in a process, which go on with sums until one fails, and then keep their ranks.
RANKS_OF_A_PROCESS = """
import sys, time, numpy, switchml
comms = [switchml.connect(job=sys.argv[1], rank=int(rank), agent=agent, timeout=120)
         for rank, agent in (place.split("=", 1) for place in sys.argv[2:])]
values = [numpy.ones(1 << 14, numpy.float32) for _ in comms]
try:
    while True:
        for work in [comm.all_reduce(x, async_op=True) for comm, x in zip(comms, values)]:
            work.wait()
        time.sleep(0.02)  # leaves CPU time to others
except switchml.SwitchMLError:
    sys.stdin.read()
"""


@contextlib.contextmanager
def served(ctl: Ctl) -> Iterator[str]:
    """Serve the page, and provide its link."""
    process = ctl.start("top", "--web", "--json", "--address", "0")
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield str(json.loads(line)["url"])
    finally:
        process.terminate()
        _, stderr = process.communicate(timeout=DEADLINE)
    assert (process.returncode, stderr) == (143, "")


@contextlib.contextmanager
def ranks_of(job: pb.Job, together: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the ranks of a job, `together` of them in a process; the last one, which has its own, is provided."""
    places = [f"{rank.rank}={rank.agent_socket}" for rank in job.ranks]
    parts = [places[start : min(start + together, len(places) - 1)] for start in range(0, len(places) - 1, together)]
    with contextlib.ExitStack() as stack:
        for part in (*parts, places[-1:]):
            command = [sys.executable, "-c", RANKS_OF_A_PROCESS, job.name, *part]
            process = subprocess.Popen(command, stdin=subprocess.PIPE)
            stack.callback(process.wait, DEADLINE)
            stack.callback(process.kill)
        yield process


def write_picture(opened: BrowserPage) -> None:
    """Take a picture with few colours, so that it is small."""
    import io

    from PIL import Image

    picture = Image.open(io.BytesIO(opened.page.screenshot())).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    picture.save(PICTURE, optimize=True)
    assert PICTURE.stat().st_size <= MOST_BYTES


@needs_browser
def test_a_killed_rank_turns_red(
    ctl: Ctl, pytestconfig: pytest.Config, limit: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    from playwright.sync_api import expect

    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'switchml[web]'")
    ctl.run("up", "--racks", "2", "--agents", str(AGENTS))
    controller = json.loads((ctl.run_dir / "fabric.json").read_text())["controller"]
    with ControllerClient(controller) as client, served(ctl) as link, browser_page() as opened:
        page = opened.page
        page.goto(link)
        assert "token" not in page.url
        page.get_by_text("No job runs.").wait_for()
        assert page.locator("#boxes .switch").count() == 3
        assert page.locator("#links line").count() == 2 + AGENTS
        request = pb.StartJobRequest(workers=RANKS, name="train", switch="spine", on_failure=pb.ON_FAILURE_RESTART)
        job = client.start_job(request)
        other = client.start_job(pb.StartJobRequest(workers=OTHERS, name="search", switch="spine"))
        with ranks_of(other, OTHERS), ranks_of(job, RANKS // AGENTS) as last:
            expect(page.locator(".cell.ATTACHED")).to_have_count(RANKS + OTHERS, timeout=1000 * DEADLINE)
            expect(page.locator("#tree line.busy")).to_have_count(2 + AGENTS, timeout=1000 * DEADLINE)
            assert page.locator(".cell.LOST").count() == 0
            last.kill()
            killed = time.time()
            page.locator(".cell.LOST").wait_for()
            red = time.time()
            if pytestconfig.getoption("--pictures"):
                write_picture(opened)
            assert page.locator(".cell.LOST").all_inner_texts() == [str(RANKS - 1)]
            told = next(event.time for event in client.read_events(kinds=["rank-lost"]))
            figure(f"a killed rank is red after {red - killed:.2f} s, {red - told:.2f} s after the controller knows it")
            assert red - told < limit(3.0)
            page.locator(".lagging", has_text="rank 63 was lost").wait_for()  # and stays red in the next epoch
            page.locator("#events .error", has_text="rank-lost").wait_for()
            assert page.locator(".cell.LOST").count() == 1
        client.stop_job(job.id)
        page.locator(".job", has_text="train").locator(".state.STOPPED").wait_for()
        assert opened.errors == []
        assert opened.hosts() == {page.url.split("/")[2]}
        ctl.run("down")
        page.get_by_text("The controller is away").wait_for()
        ctl.run("up", "--racks", "2", "--agents", str(AGENTS))
        page.locator("#trouble").wait_for(state="hidden")
    assert opened.errors == []
