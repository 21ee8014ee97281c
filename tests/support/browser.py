"""A page in a real browser: the system's Chromium, headless, driven by Playwright."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["BrowserPage", "browser_page", "needs_browser", "serving"]

_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_MILLISECONDS = 120_000  # for any action: only one that hangs takes as long


@dataclass
class BrowserPage:
    """A page and what it has caused so far: errors of its scripts and its console, and the addresses it asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def hosts(self) -> set[str]:
        """Return the hosts, with their ports, that the page asked for anything."""
        return {urlsplit(address).netloc for address in self.requests}


@contextlib.contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[int]:
    """Answer requests at a port of 127.0.0.1 with this handler; yield the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def browser_page(
    width: int = 1280, height: int = 800, color_scheme: Literal["light", "dark"] = "light"
) -> Iterator[BrowserPage]:
    """Provide an empty page of a fresh browser, without cookies. Use it only in tests marked `needs_browser`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, timeout=_MILLISECONDS)
        try:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=color_scheme)
            page.set_default_timeout(_MILLISECONDS)
            opened = BrowserPage(page)
            page.on("request", lambda request: opened.requests.append(request.url))
            page.on("pageerror", lambda error: opened.errors.append(str(error)))
            page.on("console", lambda line: opened.errors.append(line.text) if line.type == "error" else None)
            yield opened
        finally:
            browser.close()


def _why_no_browser() -> str:
    """Return which package is missing, or an empty text."""
    if importlib.util.find_spec("playwright") is None:
        return "no Playwright; install it with: pip install 'switchml[dev]'"
    return "" if _CHROMIUM else "no Chromium; on Debian, install it with: apt install chromium"


_REASON = _why_no_browser()
needs_browser = pytest.mark.skipif(bool(_REASON), reason=f"skipped: {_REASON}")
"""Marks tests that open a page in a browser."""
