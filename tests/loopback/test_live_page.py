"""The server of `switchml-ctl top --web`, before a real controller: who gets the page, and what viewers cost."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from switchml.common.errors import ConfigurationError
from switchml.common.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE, Certificates
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.ops import certificates
from tests.support.controller_harness import (
    DEADLINE,
    ControllerProcess,
    ScriptedAgent,
    configuration,
    running_controller,
    wait_until,
)
from tests.support.soft_switch import running_switch

pytest.importorskip("starlette", reason="starlette is not installed: pip install 'switchml[web]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'switchml[web]'")
from switchml.ops.live_page.server import MOST_CONNECTIONS, MOST_VIEWERS, LivePage, PageAddress

MARKUP = "</script><img src=x onerror=alert(1)>"
INTERVAL = 0.1
REQUESTS = 5  # of a reading: agents, jobs, switches, the drops of a switch, events


class CountingClient(ControllerClient):
    """Counts the requests that it sends, by method."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.requests: Counter[str] = Counter()

    def _call(self, method: Callable[..., Any], request: object, timeout: float | None = None) -> Any:
        self.requests[type(request).__name__] += 1
        return super()._call(method, request, timeout)

    def _stream(self, method: Callable[..., Any], request: object, timeout: float | None) -> Iterator[Any]:
        self.requests[type(request).__name__] += 1
        return super()._stream(method, request, timeout)


class Browser:
    """Asks a page for things, with one cookie."""

    def __init__(self, page: LivePage, context: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> None:
        self.page = page
        self.address = address
        self.link = urlsplit(page.url)
        self.cookie = ""
        self._context = context

    def get(self, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        if self._context is None:
            connection = http.client.HTTPConnection(self.address, self.page.port, timeout=DEADLINE)
        else:
            connection = http.client.HTTPSConnection(self.address, self.page.port, timeout=DEADLINE)
            raw = socket.create_connection((self.address, self.page.port), DEADLINE)
            connection.sock = self._context.wrap_socket(raw, server_hostname=self.link.hostname)
        shown = {"Host": self.link.netloc} | ({"Cookie": self.cookie} if self.cookie else {})
        connection.request(method, path, headers=shown | headers)
        return connection.getresponse()

    def enter(self) -> http.client.HTTPResponse:
        answer = self.get(f"/?{self.link.query}")
        self.cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]
        return answer

    def follow(self) -> http.client.HTTPResponse:
        answer = self.get("/events")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
        return answer


def next_state(events: http.client.HTTPResponse) -> dict[str, Any]:
    line = events.readline()
    assert line.startswith(b"data: "), line
    assert events.readline() == b"\n"
    state: dict[str, Any] = json.loads(line[6:])
    return state


def is_ended(connection: socket.socket) -> bool:
    """Wait for data or the end; the latter also if the other side has closed it with something unread."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def retried(get: Callable[[], http.client.HTTPResponse]) -> http.client.HTTPResponse:
    """Get something from a page that may be faster in closing a connection than this process in asking."""
    answers: list[http.client.HTTPResponse] = []

    def is_answered() -> bool:
        with contextlib.suppress(ConnectionError):
            answers.append(get())
        return bool(answers)

    wait_until(is_answered, "the page answers")
    return answers[0]


def write_certificate(directory: Path, *names: str) -> Certificates:
    """Write a certificate for these names that is its own authority."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(timezone.utc)
    itself = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "page")])
    builder = x509.CertificateBuilder(itself, itself, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, names))), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    (directory / CA_FILE).write_bytes(pem)
    (directory / CERTIFICATE_FILE).write_bytes(pem)
    (directory / KEY_FILE).touch(0o600)
    (directory / KEY_FILE).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return Certificates(directory)


def trusting() -> ssl.SSLContext:
    """Return a context that accepts every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextlib.contextmanager
def served(client: ControllerClient, place: PageAddress, interval: float = INTERVAL) -> Iterator[LivePage]:
    page = LivePage(client, interval, place)
    thread = threading.Thread(target=page.serve)
    thread.start()
    try:
        yield page
    finally:
        page.stop()
        thread.join(DEADLINE)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    directory = tmp_path_factory.mktemp("fabric")
    with (
        running_switch(directory, "--udp-port", "1=127.0.0.1:0", "--values", "64") as switch,
        running_controller(directory, configuration(switch)) as (process, _),
        ScriptedAgent(process.listen, name="a1", host=MARKUP),
    ):
        yield process


@pytest.fixture(scope="module")
def client(controller: ControllerProcess) -> Iterator[CountingClient]:
    made = CountingClient(controller.listen)
    with made:
        yield made


@pytest.fixture(scope="module")
def page(client: CountingClient) -> Iterator[LivePage]:
    with served(client, PageAddress(patience=1)) as made:
        yield made


@pytest.fixture
def browser(page: LivePage) -> Browser:
    made = Browser(page)
    made.enter()
    wait_until(lambda: page.viewers == 0, "the viewers of the test before are gone")
    return made


def test_the_token_of_the_link_becomes_a_cookie_and_leaves_the_address(page: LivePage) -> None:
    stranger = Browser(page)
    for path in ("/", "/events", "/page.js", "/page.css", "/?token=wrong", "/?token=%ff", "/nothing"):
        answer = stranger.get(path)
        assert (answer.status, "top --web" in answer.read().decode()) == (401, True), path
    answer = stranger.enter()
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert stranger.link.query.partition("=")[2] not in cookie
    assert stranger.get("/").status == 200
    assert stranger.get("/nothing").status == 404
    assert stranger.get("/", Cookie=stranger.cookie + "x").status == 401


def test_pages_of_two_hosts_do_not_share_a_cookie(
    client: CountingClient, page: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    with served(client, PageAddress("127.0.0.2", page.port)) as other:  # both by `ssh -L`, at ports of one machine
        browsers = Browser(page), Browser(other, address="127.0.0.2")
        for each in browsers:
            each.enter()
        cookies = dict(each.cookie.split("=", 1) for each in browsers)  # the browser has one of each name
        for each in browsers:
            each.cookie = "; ".join(map("=".join, cookies.items()))
            assert each.get("/").status == 200


def test_other_hosts_and_methods_are_refused(browser: Browser) -> None:
    for host in ("attacker.example", f"attacker.example:{browser.page.port}", "127.0.0.1.attacker.example", "[", ""):
        assert browser.get("/", Host=host).status == 400, host
    for host in ("localhost", "127.0.0.1:9999", "[::1]:80", "LOCALHOST"):  # through `ssh -L`, the port is another
        assert browser.get("/", Host=host).status == 200, host
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
        answer = browser.get("/events", method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET"), method


def test_nothing_from_elsewhere_may_run(browser: Browser) -> None:
    for path in ("/", "/page.js", "/page.css", "/nothing"):
        headers = browser.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert (policy["default-src"], policy["script-src"], policy["frame-ancestors"]) == (
            "'none'",
            "'self'",
            "'none'",
        )
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"


def test_markup_in_names_stays_text(browser: Browser) -> None:
    text = browser.get("/").read().decode()
    assert "<img" not in text
    assert text.count("</script>") == 2
    state = json.loads(text.partition('data-interval="0.1">')[2].partition("</script>")[0])
    assert state["agents"] == [{"name": "a1", "host": MARKUP, "switch": "s1", "live": True}]
    with browser.follow() as events:
        assert next_state(events)["agents"] == state["agents"]


def test_many_viewers_cost_the_controller_what_one_does(browser: Browser, client: CountingClient) -> None:
    began, before = time.monotonic(), client.requests.copy()
    with contextlib.ExitStack() as stack:
        viewers = [stack.enter_context(browser.follow()) for _ in range(MOST_VIEWERS)]
        for path in ("/", "/events"):
            answer = browser.get(path)
            assert (answer.status, answer.read().startswith(b"This page has 32 viewers")) == (503, True)
        for _ in range(3):
            states = [next_state(events) for events in viewers]
            assert all(state["switches"][0]["name"] == "s1" for state in states)
        made = client.requests - before
        readings = made["ListAgentsRequest"]
    assert readings <= 1 + (time.monotonic() - began) / INTERVAL
    assert REQUESTS * (readings - 1) <= made.total() <= REQUESTS * (readings + 1)  # two may be counted in part
    wait_until(lambda: browser.page.viewers == 0, "the viewers are gone")
    assert browser.get("/").status == 200


def test_a_viewer_that_takes_nothing_delays_nobody_and_is_let_go(browser: Browser) -> None:
    with socket.socket() as slow, browser.follow() as events:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel takes its least
        slow.connect(("127.0.0.1", browser.page.port))
        slow.sendall(f"GET /events HTTP/1.1\r\nHost: localhost\r\nCookie: {browser.cookie}\r\n\r\n".encode())
        wait_until(lambda: browser.page.viewers == 2, "both are viewers")
        times = [next_state(events)["time"] for _ in range(5)]
        assert times == sorted(set(times))
        wait_until(lambda: next_state(events) and browser.page.viewers == 1, "the kernel has ended its connection")


def test_a_connection_that_asks_for_nothing_is_closed(client: CountingClient, tmp_path: Path) -> None:
    places = PageAddress(silence=0.2), PageAddress(certificates=write_certificate(tmp_path, "localhost"), silence=0.2)
    for place in places:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: local"):
            with served(client, place) as page, socket.create_connection(("127.0.0.1", page.port), DEADLINE) as silent:
                silent.sendall(sent)
                assert is_ended(silent), (place, sent)


def test_a_connection_is_for_one_request(page: LivePage) -> None:
    with socket.create_connection(("127.0.0.1", page.port), DEADLINE) as connection:
        connection.sendall(2 * b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answers = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answers.count(b"HTTP/1.1 401") == 1


def test_the_time_for_a_request_does_not_end_the_answer(client: CountingClient) -> None:
    with served(client, PageAddress(silence=0.5)) as page:
        browser = Browser(page)
        retried(browser.enter)
        with retried(browser.follow) as events:
            first = next_state(events)["time"]
            wait_until(lambda: next_state(events)["time"] > first + 1, "it has gone on for twice that time")


def test_silent_connections_keep_no_viewer_out(client: CountingClient) -> None:
    with served(client, PageAddress(silence=3600)) as page, contextlib.ExitStack() as stack:
        browser = Browser(page)
        browser.enter()
        events = stack.enter_context(browser.follow())
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", page.port), DEADLINE))
            for _ in range(MOST_CONNECTIONS + 1)
        ]
        assert is_ended(silent[0])
        assert browser.get("/").status == 200
        assert next_state(events)["switches"]
        silent[-1].setblocking(False)
        with pytest.raises(BlockingIOError):  # it is open
            silent[-1].recv(1)


def test_a_failed_job_stays_with_its_lost_rank(browser: Browser, client: CountingClient) -> None:
    with ScriptedAgent(client.address, name="a2", host="h2") as agent:
        job = client.start_job(pb.StartJobRequest(workers=2, name="doomed", agents=["a2"]))
        lost = next(rank.rank for rank in job.ranks if rank.agent == "a2")
        agent.event(job, lost, pb.RankEvent.KIND_ATTACHED)
        with browser.follow() as events:
            wait_until(lambda: [each["name"] for each in next_state(events)["jobs"]] == ["doomed"], "the job is shown")
            agent.event(job, lost, pb.RankEvent.KIND_LOST, detail=MARKUP)
            wait_until(lambda: next_state(events)["jobs"][0]["state"] == "FAILED", "the job has failed")
            state = next_state(events)
    (failed,) = state["jobs"]
    assert {rank[0]: rank[1] for rank in failed["ranks"]}[lost] == "LOST"
    assert MARKUP in failed["failure"]
    assert "rank-lost" in {event["kind"] for event in state["events"]}


def test_the_page_says_that_the_controller_is_away_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with running_switch(tmp_path, "--udp-port", "1=127.0.0.1:0", "--values", "64") as switch:
        process = ControllerProcess(tmp_path, configuration(switch))
        with process.start() as client, served(client, PageAddress()) as page:
            browser = Browser(page)
            browser.enter()
            with browser.follow() as events:
                assert "away" not in next_state(events)
                process.kill()
                wait_until(lambda: "away" in next_state(events), "the page says so")
                with process.start(wait_connected=False):
                    wait_until(lambda: "away" not in next_state(events), "the page goes on")
        process.stop()


def test_the_page_goes_on_after_any_error(
    browser: Browser, client: CountingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("no descriptors")

    with browser.follow() as events:
        monkeypatch.setattr(client, "list_agents", fail)
        wait_until(lambda: "no descriptors" in next_state(events).get("away", ""), "the page says so")
        monkeypatch.undo()
        wait_until(lambda: "away" not in next_state(events), "the page goes on")


def test_beyond_loopback_only_with_certificates(client: CountingClient, tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(ConfigurationError, match="is not on loopback"):
            LivePage(client, INTERVAL, PageAddress(host))
    certificates.init(tmp_path)
    with pytest.raises(ConfigurationError, match="names no host"):
        LivePage(client, INTERVAL, PageAddress("0.0.0.0", certificates=Certificates(tmp_path / "admin")))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        LivePage(client, INTERVAL, PageAddress("0.0.0.0", certificates=Certificates(tmp_path)))
    with served(client, PageAddress("0.0.0.0", certificates=Certificates(tmp_path / "controller"))) as page:
        context = ssl.create_default_context(cafile=str(tmp_path / "controller" / "ca.crt"))
        browser = Browser(page, context)
        assert (browser.link.scheme, browser.link.hostname) == ("https", "controller.switchml")
        assert "Secure" in browser.enter().headers["Set-Cookie"]
        assert browser.get("/").status == 200
        assert browser.get("/", Host="0.0.0.0").status == 400
        with browser.follow() as events:
            assert next_state(events)["switches"]


DOMAIN = ("example.com", "*.example.com")


@pytest.mark.parametrize(
    ("address", "host", "names", "shown"),
    [
        ("node1.example.com", "box", DOMAIN, "node1.example.com"),
        ("Node1.example.com", "box", DOMAIN, "node1.example.com"),
        ("0.0.0.0", "node1.example.com", DOMAIN, "node1.example.com"),
        ("0.0.0.0", "node2", ("node1.example.com", "node2.example.com"), "node2.example.com"),
        ("0.0.0.0", "box", ("page.example.com",), "page.example.com"),
    ],
)
def test_the_link_names_this_host(
    client: CountingClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    host: str,
    names: tuple[str, ...],
    shown: str,
) -> None:
    listen = socket.create_server
    monkeypatch.setattr(socket, "create_server", lambda place, **options: listen(("127.0.0.1", place[1]), **options))
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    with served(client, PageAddress(address, certificates=write_certificate(tmp_path, *names))) as page:
        browser = Browser(page, trusting())
        assert browser.link.hostname == shown
        assert browser.enter().status == 303


@pytest.mark.parametrize("names", [DOMAIN, DOMAIN[1:]])
def test_a_certificate_of_many_hosts_needs_the_name_of_this_one(
    client: CountingClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    with pytest.raises(ConfigurationError, match=r"is for several hosts .* in --address"):
        LivePage(client, INTERVAL, PageAddress("0.0.0.0", certificates=write_certificate(tmp_path, *names)))


def test_an_address_in_use_is_named(client: CountingClient, page: LivePage) -> None:
    with pytest.raises(OSError, match=rf"127\.0\.0\.1:{page.port}.*give another --address"):
        LivePage(client, INTERVAL, PageAddress(port=page.port))
