"""A daemon's log on standard error: as text or JSON lines, with repeated messages suppressed."""

from __future__ import annotations

import atexit
import json
import logging
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import click

from switchml.common.log_limit import truncate_if_long
from switchml.common.printable import printable

__all__ = ["LEVELS", "JsonFormatter", "LimitedHandler", "TextFormatter", "configure", "log_options"]

LEVELS: Final = ("debug", "info", "warning", "error")
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_WINDOW_SECONDS: Final = 10.0
_MOST_WARNINGS: Final = 20  # of one kind per window; applies to warnings and errors
_MOST_OTHERS: Final = 500
_MOST_KINDS: Final = 1000  # kinds that are remembered
_LIMIT: Final = "switchml.log_limit"  # key in click's context

F = TypeVar("F", bound=Callable[..., Any])


class TextFormatter(logging.Formatter):
    """Time, level, logger and message on one line, even if the message has line ends; exceptions follow below."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line."""
        record.message = printable(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (RFC 3339, UTC), level, logger, message, and exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        content: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content)


@dataclass
class _Kind:
    """Records that differ only in their arguments, in one window."""

    began: float
    seen: int = 0
    left_out: int = 0


if TYPE_CHECKING:
    _TextHandler = logging.StreamHandler[TextIO]
else:
    _TextHandler = logging.StreamHandler  # before Python 3.11 it takes no type when the program runs


class LimitedHandler(_TextHandler):
    """Rate-limit records of one kind per ten-second window, then log how many were suppressed.

    Records are of one kind if they have the same logger, level and message text before formatting.
    """

    def __init__(
        self,
        stream: TextIO,
        window: float = _WINDOW_SECONDS,
        most_warnings: int = _MOST_WARNINGS,
        file_bytes: int = 0,
    ) -> None:
        """Write to `stream`; if it is a file, truncate it at this size in bytes, unless that is 0."""
        super().__init__(stream)
        self._file_bytes = file_bytes
        self._window = window
        self._most_warnings = most_warnings
        self._kinds: OrderedDict[tuple[str, int, str], _Kind] = OrderedDict()
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it; the handler's lock is held."""
        if self._may_pass(record):
            super().emit(record)
            if self._file_bytes:
                truncate_if_long(self.stream, self._file_bytes)

    def summarise(self, all_kinds: bool = False) -> None:
        """Log how many records were suppressed in expired windows, or in all windows."""
        self.acquire()
        try:
            self._timer = None
            now = time.monotonic()
            for key, kind in list(self._kinds.items()):
                if all_kinds or now - kind.began >= self._window:
                    del self._kinds[key]
                    self._say(key, kind)
            if any(kind.left_out for kind in self._kinds.values()):
                self._start_timer()
        finally:
            self.release()

    def _may_pass(self, record: logging.LogRecord) -> bool:
        key = (record.name, record.levelno, str(record.msg))
        now = time.monotonic()
        kind = self._kinds.get(key)
        if kind is not None and now - kind.began >= self._window:
            del self._kinds[key]
            self._say(key, kind)
            kind = None
        if kind is None:
            kind = self._kinds[key] = _Kind(now)
            if len(self._kinds) > _MOST_KINDS:
                self._say(*self._kinds.popitem(last=False))
        kind.seen += 1
        most = self._most_warnings if record.levelno >= logging.WARNING else _MOST_OTHERS
        if kind.seen <= most:
            return True
        kind.left_out += 1
        if self._timer is None:
            self._start_timer()
        return False

    def _say(self, key: tuple[str, int, str], kind: _Kind) -> None:
        if not kind.left_out:
            return
        name, level, text = key
        arguments = (kind.left_out, time.monotonic() - kind.began, text)
        message = "suppressed %d more messages like this within %.1f s: %s"
        super().emit(logging.LogRecord(name, level, __file__, 0, message, arguments, None))

    def _start_timer(self) -> None:
        """Write the summary later even if nothing else is logged."""
        self._timer = threading.Timer(self._window, self.summarise)
        self._timer.daemon = True
        self._timer.start()


def configure(log_format: str, log_level: str) -> None:
    """Send this process's log to standard error; `log_format` is text or json, `log_level` one of LEVELS."""
    context = click.get_current_context(silent=True)
    mebibytes = context.meta.get(_LIMIT, 0) if context is not None else 0
    handler = LimitedHandler(sys.stderr, file_bytes=mebibytes << 20)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter(_TEXT))
    atexit.register(handler.summarise, all_kinds=True)
    logging.basicConfig(level=log_level.upper(), handlers=[handler])


def log_options(command: F) -> F:
    """Give a click command --log-format and --log-level, as `log_format` and `log_level`, and --log-limit."""

    def note_limit(context: click.Context, _: click.Parameter, mebibytes: int) -> None:
        context.meta[_LIMIT] = mebibytes

    limit = click.option(
        "--log-limit",
        type=click.IntRange(0, 1 << 20),
        default=0,
        show_default=True,
        expose_value=False,
        callback=note_limit,
        metavar="MIB",
        help="If standard error is a file: truncate it at this size in MiB, after copying it to FILE.1; 0: never.",
    )
    level = click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
    kind = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Text for people, or one JSON object per line for programs.",
    )
    return kind(level(limit(command)))
