"""The logs of daemons."""

import io
import json
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from switchml.common.process_logs import JsonFormatter, LimitedHandler, TextFormatter


def logger_of(handler: logging.Handler, name: str) -> logging.Logger:
    logger = logging.Logger(name)
    logger.addHandler(handler)
    return logger


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("test", logging.INFO, __file__, 0, text, (), None)


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_json_lines() -> None:
    stream = io.StringIO()
    handler = LimitedHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logger_of(handler, "switchml.controller.records")
    logger.warning("job %s:\n%d ranks", "ä", 3)
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("it failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.keys() == {"time", "level", "logger", "message", "pid"}
    assert (first["level"], first["logger"], first["message"]) == (
        "warning",
        "switchml.controller.records",
        "job ä:\n3 ranks",
    )
    assert time.strptime(first["time"][:19], "%Y-%m-%dT%H:%M:%S")
    assert "ValueError: no" in second["exception"]


def test_a_line_of_text_shows_what_others_said_and_does_nothing_else() -> None:
    """Text from an agent or a peer can neither forge a line of the log nor send escape sequences to a terminal."""
    stream = io.StringIO()
    handler = LimitedHandler(stream)
    handler.setFormatter(TextFormatter("%(levelname)s %(name)s: %(message)s"))
    logger = logger_of(handler, "switchml.controller.records")
    logger.warning("agent %s says: %s", "größe", "no\nERROR controller: forged\x1b]0;title\x07\x9b2J\u202e")
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("it failed")
    first, second, *traceback = stream.getvalue().splitlines()
    said = r"no\nERROR controller: forged\x1b]0;title\x07\x9b2J\u202e"
    assert first == f"WARNING switchml.controller.records: agent größe says: {said}"
    assert second == "ERROR switchml.controller.records: it failed"
    assert traceback[-1] == "ValueError: no"


def test_what_is_repeated_is_summarised_by_itself() -> None:
    stream = io.StringIO()
    logger = logger_of(LimitedHandler(stream, window=0.3, most_warnings=3), "agent")
    for number in range(50):
        logger.warning("packet %d is bad", number)
        if number == 10:
            logger.warning("something else")

    def said(pattern: str) -> list[str]:
        return re.findall(pattern, stream.getvalue(), re.MULTILINE)

    def suppressed() -> int:
        return sum(map(int, said(r"^suppressed (\d+) more messages like this within .* s: packet %d is bad$")))

    # On a busy machine the window may end between two of the messages.
    until(lambda: len(said(r"^packet \d+ is bad$")) + suppressed() == 50)
    assert suppressed() > 0
    assert said(r"^packet (\d+) is bad$")[:3] == ["0", "1", "2"]
    assert said("^something else$") == ["something else"]
    logger.warning("packet %d is bad", 99)  # a new window
    assert stream.getvalue().splitlines()[-1] == "packet 99 is bad"


def test_the_rest_is_said_at_the_end() -> None:
    stream = io.StringIO()
    handler = LimitedHandler(stream, window=100, most_warnings=1)
    logger = logger_of(handler, "agent")
    for _ in range(3):
        logger.error("no room")
    handler.summarise(all_kinds=True)
    assert stream.getvalue().splitlines()[1].startswith("suppressed 2 more messages like this within")


def test_a_flood_of_kinds_does_not_fill_the_memory() -> None:
    handler = LimitedHandler(io.StringIO())
    logger = logger_of(handler, "agent")
    for number in range(5000):
        logger.warning(f"text {number}")
    assert len(handler._kinds) == 1000


def test_a_file_is_begun_anew_when_it_is_long(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    with path.open("w") as stream:
        handler = LimitedHandler(stream, file_bytes=1000)
        for number in range(200):
            handler.handle(record(f"kind {number} {'x' * 40}"))
            stream.flush()
            assert path.stat().st_size <= 1000
    lines = path.read_text().splitlines() + (tmp_path / "agent.log.1").read_text().splitlines()
    assert 1000 <= (tmp_path / "agent.log.1").stat().st_size <= 1100
    assert any("kind 199 " in line for line in lines)  # the newest lines are present and complete
    assert all(line.startswith("kind ") for line in lines)


def test_what_is_no_file_has_no_length() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream, os.fdopen(reader) as pipe:
        LimitedHandler(stream, file_bytes=1).handle(record("said"))
        stream.flush()
        assert pipe.readline() == "said\n"
