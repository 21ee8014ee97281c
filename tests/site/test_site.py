"""The documentation site, as `make site` builds it, in a browser: its pages, its links and its search."""

from __future__ import annotations

import functools
import http.server
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from tests.support.browser import browser_page, needs_browser, serving
from tools.generate import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HTML = ROOT / "build" / "site" / "html"
QUESTIONS = tomllib.loads(Path(__file__).with_name("questions.toml").read_text(encoding="utf-8"))["questions"]
RESULTS = """() => {
  const links = [];
  const walk = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot) walk(element.shadowRoot);
      if (element.tagName === "A" && element.href.includes("?h=")) links.push(element.href);
    }
  };
  walk(document);
  return links;
}"""
"""Returns the addresses of the hits that the search shows, which marks its words by `?h=`."""


@pytest.fixture(scope="module")
def site() -> Path:
    """Build the site."""
    pytest.importorskip("zensical", reason="no Zensical; install it with: pip install 'switchml[dev]'")
    built = subprocess.run(
        [sys.executable, "-m", "tools.site"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return HTML


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serve it on loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with serving(functools.partial(Quiet, directory=str(site))) as port:
        yield f"http://127.0.0.1:{port}"


class Page(HTMLParser):
    """The links, the places of anchors and what a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in values:
            self.loads.append(values["src"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload", "modulepreload", "preconnect"):
            self.loads.append(values["href"])


def pages(site: Path) -> dict[str, Page]:
    return {
        str(path.relative_to(site)): Page(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
        if path.name != "404.html"
    }


def test_every_link_leads_to_a_page_and_a_place_in_it(site: Path) -> None:
    found = pages(site)
    wrong = []
    for name, page in found.items():
        for link in page.links + page.loads:
            parts = urlsplit(urljoin(f"http://site/{name}", link))
            if parts.netloc != "site" or parts.scheme != "http":
                continue
            target = parts.path.lstrip("/") or "index.html"
            if target in found:
                if parts.fragment not in found[target].places and not parts.fragment.startswith("__"):
                    wrong.append(f"{name}: {link}: no such place")
            elif not (site / target).is_file():
                wrong.append(f"{name}: {link}: no such file")
    assert wrong == [], "\n".join(wrong)


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for name, page in pages(site).items():
        assert [address for address in page.loads if urlsplit(address).netloc] == [], name


def test_every_page_is_two_clicks_from_the_first_one(site: Path) -> None:
    found = pages(site)

    def next_to(name: str) -> set[str]:
        links = (urlsplit(urljoin(f"http://site/{name}", link)) for link in found[name].links)
        return {link.path.lstrip("/") for link in links if link.netloc == "site"} & found.keys()

    first = next_to("index.html")
    reached = {"index.html"} | first | {page for name in first for page in next_to(name)}
    assert sorted(found.keys() - reached) == []


@needs_browser
def test_pages_open_without_errors_and_without_requests_to_other_hosts(site: Path, address: str) -> None:
    with browser_page() as browser:
        for name in sorted(pages(site)):
            browser.page.goto(f"{address}/{name}")
            assert browser.page.locator("h1").count() == 1, name
            assert browser.errors == [], name
        assert browser.hosts() == {urlsplit(address).netloc}


@needs_browser
def test_the_search_leads_to_the_page_that_answers_the_question(address: str) -> None:
    missed = []
    with browser_page() as browser:
        for question in QUESTIONS:
            browser.page.goto(f"{address}/index.html")  # since the hits of the question before stay for a while
            typed = browser.page.locator('input[aria-label="Search"]')
            typed.wait_for(state="attached")  # the search is there once its scripts have run
            browser.page.locator("button.md-search__button").click()
            typed.fill(question["asks"])
            browser.page.wait_for_function(f"({RESULTS})().length > 0")
            hits = list(dict.fromkeys(urlsplit(hit).path.lstrip("/") for hit in browser.page.evaluate(RESULTS)))
            if not set(question["pages"]) & set(hits[:2]):
                missed.append(f"{question['asks']}: {hits[:4]} instead of {question['pages']}")
    assert missed == [], "\n".join(missed)
