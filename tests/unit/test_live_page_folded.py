"""The live page in a browser, with more ranks than it shows singly, and with names that a controller would refuse."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from switchml.controller.client import ControllerClient
from switchml.controller.proto import events_pb2
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.browser import browser_page, needs_browser

LEAVES, RANKS_OF_AN_AGENT = 16, 8
RANKS = 1024
LOST = 1000
MARKUP = "</script><img src=x onerror=alert(1)>&amp;"


def controller() -> ControllerClient:
    """Return what answers as the client of a controller with a large job does."""
    leaves = [
        pb.Switch(name=f"leaf-{n}", parent="spine", connected=True, slots=8192, slots_free=8064) for n in range(16)
    ]
    agents = [
        pb.Agent(name=f"{n} {MARKUP}", registration=pb.Register(host=MARKUP, switch=f"leaf-{n % LEAVES}"), live=True)
        for n in range(RANKS // RANKS_OF_AN_AGENT)
    ]
    ranks = []
    for number in range(RANKS):
        agent = agents[number // RANKS_OF_AN_AGENT]
        state = pb.RANK_STATE_LOST if number == LOST else pb.RANK_STATE_ATTACHED
        ranks.append(pb.Rank(rank=number, state=state, agent=agent.name, switch=agent.registration.switch))
    job = pb.Job(id=1, key=1, name=MARKUP, state=pb.JOB_STATE_RUNNING, failure=MARKUP, workers=RANKS, ranks=ranks)
    event = events_pb2.Event(number=1, kind="rank-lost", level="error", detail=MARKUP, agent=MARKUP)
    answers: Any = SimpleNamespace(
        list_agents=lambda: agents,
        list_jobs=lambda: [job],
        list_switches=lambda: [pb.Switch(name="spine", connected=True, slots=8, slots_free=4), *leaves],
        show_switch=lambda _: pb.SwitchDetail(drop_reasons={MARKUP: 7}),
        read_events=lambda **_: iter([event]),
    )
    return cast(ControllerClient, answers)


@needs_browser
def test_a_thousand_ranks_are_folded_and_markup_is_text() -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'switchml[web]'")
    from switchml.ops.live_page.server import LivePage, PageAddress

    served = LivePage(controller(), 0.5, PageAddress())
    thread = threading.Thread(target=served.serve)
    thread.start()
    try:
        with browser_page() as opened:
            page = opened.page
            page.goto(served.url)
            rows = page.locator("details.group")
            assert rows.count() == LEAVES  # an agent each would be too many
            assert page.locator(".cell").count() == 0
            page.get_by_text(f"lost: {LOST}").wait_for()
            row = rows.filter(has_text=f"lost: {LOST}")
            assert "63 attached, 1 lost" in row.inner_text()
            row.locator("summary").click()
            page.locator(".cell.LOST", has_text=str(LOST)).wait_for()
            assert page.locator(".cell").count() == RANKS // LEAVES
            assert page.locator("#boxes .agent").count() == LEAVES
            page.locator("#events li", has_text=MARKUP).wait_for()
            page.locator("#switches td", has_text=MARKUP).first.wait_for()
            assert page.locator("h3").inner_text() == MARKUP
            assert page.locator("img").count() == 0
            assert opened.errors == []
    finally:
        served.stop()
        thread.join(30)
