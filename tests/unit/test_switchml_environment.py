"""Which rank a process is, from its arguments and environment."""

from pathlib import Path

import pytest

from switchml.environment import Target, find_target
from switchml.errors import ConnectError

FULL = {
    "SWITCHML_AGENT": "/run/a.sock",
    "SWITCHML_JOB": "train",
    "SWITCHML_RANK": "3",
    "SWITCHML_WORLD_SIZE": "8",
    "SWITCHML_RUN_DIR": "/run/fabric",
}


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in FULL.items() if name not in names}


def test_all_from_the_environment() -> None:
    assert find_target(FULL) == Target(Path("/run/a.sock"), "train", 3, 8)


def test_the_run_directory_stands_in_for_the_agent() -> None:
    assert find_target(without("SWITCHML_AGENT")).agent == Path("/run/fabric/agent.sock")


def test_the_world_size_is_optional() -> None:
    assert find_target(without("SWITCHML_WORLD_SIZE")).world_size is None


def test_arguments_come_first() -> None:
    assert find_target(FULL, "/b.sock", 7, 0, 2) == Target(Path("/b.sock"), "7", 0, 2)
    assert find_target({}, Path("/b.sock"), "j", 0) == Target(Path("/b.sock"), "j", 0, None)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (("SWITCHML_JOB",), "SWITCHML_JOB"),
        (("SWITCHML_RANK",), "SWITCHML_RANK"),
        (("SWITCHML_AGENT", "SWITCHML_RUN_DIR"), "neither SWITCHML_AGENT .* nor SWITCHML_RUN_DIR"),
    ],
)
def test_what_is_missing_is_named_with_the_way_to_get_it(missing: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConnectError, match=words + ".*switchml-ctl job start"):
        find_target(without(*missing))
    with pytest.raises(ConnectError, match=words):
        find_target({**FULL, **dict.fromkeys(missing, "")})


@pytest.mark.parametrize("name", ["SWITCHML_RANK", "SWITCHML_WORLD_SIZE"])
@pytest.mark.parametrize("value", ["three", "-1", "1.0", "٣", "1" * 10])
def test_numbers_that_are_none(name: str, value: str) -> None:
    with pytest.raises(ConnectError, match=f"{name} is .* no number"):
        find_target({**FULL, name: value})
