"""Fixtures of the tests that drive the soft switch over P4Runtime, and of those of collectives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.collective_harness import Fabric, running_fabric
from tests.support.soft_switch import Client, SwitchProcess, running_switch


@pytest.fixture(scope="module")
def switch_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchProcess]:
    """Provide a switch with two ports and 64 slots."""
    directory = tmp_path_factory.mktemp("switch")
    with running_switch(directory, "--udp-port", "1=127.0.0.1:0", "--udp-port", "2=127.0.0.1:0", "--slots", "64") as s:
        yield s


@pytest.fixture(scope="session")
def election_ids() -> Iterator[int]:
    """Provide ids that only grow, because a switch remembers the highest one."""
    return itertools.count(1)


@pytest.fixture
def client(switch_process: SwitchProcess, election_ids: Iterator[int]) -> Iterator[Client]:
    """Provide a primary client of a switch whose state is cleared."""
    with Client(switch_process.address, next(election_ids)) as primary:
        primary.set_config()
        yield primary


@pytest.fixture(params=["udp", "shm", "direct"])
def transport(request: pytest.FixtureRequest) -> str:
    """Provide the way of ranks to the switch in tests of collectives."""
    name: str = request.param
    return name


@pytest.fixture
def fabric(tmp_path: Path, transport: str, request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """Provide a switch and an agent without jobs; packets have as many values as the test's module says in VALUES."""
    with running_fabric(tmp_path, request.module.VALUES, transport=transport) as running:
        yield running
