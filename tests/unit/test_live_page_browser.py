"""The live page in a browser, with what a small fabric seldom has.

These are more ranks than the page shows singly, names that a controller would refuse, a moment without switches, and a
link on another site.
"""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any, cast

import pytest

from switchml.controller.client import ControllerClient
from switchml.controller.proto import events_pb2
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.browser import browser_page, needs_browser, serving

LEAVES, RANKS_OF_AN_AGENT = 16, 8
RANKS = 1024
LOST = 1000
MARKUP = "</script><img src=x onerror=alert(1)>&amp;"
SWITCH = pb.Switch(name="s1", connected=True, slots=8, slots_free=4)


@contextlib.contextmanager
def served(client: ControllerClient, interval: float = 0.1) -> Iterator[str]:
    """Serve the page, and provide its link."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'switchml[web]'")
    from switchml.ops.live_page.server import LivePage, PageAddress

    page = LivePage(client, interval, PageAddress())
    thread = threading.Thread(target=page.serve)
    thread.start()
    try:
        yield page.url
    finally:
        page.stop()
        thread.join(30)


@contextlib.contextmanager
def linked(link: str) -> Iterator[str]:
    """Serve a page with a link, and provide its address, which a browser takes for another site than 127.0.0.1."""

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f'<link rel="icon" href="data:,"><a href="{link}">open it</a>'.encode())

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Keep quiet."""

    with serving(Site) as port:
        yield f"http://localhost:{port}/"


def small_controller(*switches: pb.Switch) -> Any:
    """Return what answers as the client of a controller with these switches, and nothing else, does."""
    return SimpleNamespace(
        list_agents=list,
        list_jobs=list,
        list_switches=lambda: switches,
        show_switch=lambda _: pb.SwitchDetail(),
        read_events=lambda **_: iter([]),
    )


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
    with served(controller()) as link, browser_page() as opened:
        page = opened.page
        page.goto(link)
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


@needs_browser
def test_a_link_on_another_site_opens_the_page() -> None:
    with served(small_controller(SWITCH)) as link, linked(link) as site, browser_page() as opened:
        opened.page.goto(site)
        opened.page.get_by_role("link").click()
        opened.page.wait_for_url(link.partition("?")[0])
        assert opened.page.locator("#boxes .switch").count() == 1
        assert opened.errors == []


@needs_browser
def test_a_tree_that_was_away_is_drawn_again() -> None:
    client = small_controller(SWITCH)
    with served(client) as link, browser_page() as opened:
        opened.page.goto(link)
        opened.page.locator("#boxes .switch").wait_for()
        client.list_switches = list
        opened.page.get_by_text("The controller's configuration has no switch.").wait_for()
        client.list_switches = lambda: [SWITCH]
        opened.page.locator("#boxes .switch").wait_for()
        assert opened.errors == []


@needs_browser
def test_a_state_that_cannot_be_drawn_is_no_silent_trouble() -> None:
    with served(small_controller(SWITCH), interval=3600) as link, browser_page() as opened:  # no state replaces it
        opened.page.goto(link)
        good = opened.page.locator("#state").inner_text()
        opened.page.evaluate("text => take(text)", '{"jobs": []}')
        opened.page.locator("#trouble", has_text="This page cannot show the latest state").wait_for()
        assert opened.page.locator("body.stale").count() == 1
        assert len(opened.errors) == 1
        opened.page.evaluate("text => take(text)", good)
        opened.page.locator("#trouble").wait_for(state="hidden")
