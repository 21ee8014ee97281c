"""Ranks of large jobs at the agent's engine and in the library, and those that are refused."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchml.dataplane.constants import PROTOCOL_MAX_WORLD
from switchml.dataplane.softswitch._native import ShmPortSpec, Switch
from switchml.host_agent._engine import Engine
from tests.loopback.rank_assignments import rank_assignment

SLOTS = 64
VALUES = 64
RANK_IN_GEOMETRY = 16  # native/channel/channel.h


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    engine.start()
    yield engine
    engine.stop()


@pytest.mark.parametrize("world_size", [64, 65, 1024, PROTOCOL_MAX_WORLD])
def test_a_rank_is_told_the_size_of_its_world(engine: Engine, world_size: int) -> None:
    handle = engine.open_rank(rank_assignment(1, 63, world_size, slots=SLOTS, values=VALUES))
    memory, *others = engine.open_channel(handle)
    try:
        told = struct.unpack("II", os.pread(memory, 8, RANK_IN_GEOMETRY))
        assert told == (63, world_size)
    finally:
        for descriptor in (memory, *others):
            os.close(descriptor)
        engine.close_rank(handle)


@pytest.mark.parametrize(
    ("rank", "world_size", "why"),
    [
        (0, PROTOCOL_MAX_WORLD + 1, r"1\.\.4096"),
        (65, 65, "below world_size"),
        (64, 65, r"senders 0\.\.63"),
        (1 << 16, 65, "rank is 65536; it must be 0 to 65535"),
    ],
)
def test_ranks_that_packets_cannot_name(engine: Engine, rank: int, world_size: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        engine.open_rank(rank_assignment(1, rank, world_size, slots=SLOTS, values=VALUES))


def test_a_large_job_does_not_share_memory_with_its_switch(tmp_path: Path, engine: Engine) -> None:
    switch, path = Switch(SLOTS, VALUES), str(tmp_path / "switch")
    switch.add_port(1, ShmPortSpec(path=path))
    switch.start()
    try:
        with pytest.raises(ValueError, match="more than 64 ranks cannot share memory with one switch"):
            engine.open_shm_rank(path, rank_assignment(1, 0, 65, slots=SLOTS, values=VALUES))
    finally:
        switch.stop()
