"""A jump of the clock or a suspended process does not count as silence of the others; real silence is still noticed."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from switchml.common.clock import TEST_VARIABLE, chosen_clock, stood_still
from switchml.controller.store.lock import BEAT_SECONDS, LEASE_SECONDS, Leader, StoreLock, Watch

STEP = 0.2


class WrongClock:
    """A clock that the test advances and lets jump."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def jump(self) -> None:
        self.now += self.chance.choice([-1, 1]) * 10 ** self.chance.uniform(0, 5)


@pytest.mark.parametrize("seed", range(5))
def test_a_standby_takes_over_from_a_dead_leader_and_from_no_other(tmp_path: Path, seed: int) -> None:
    path, clock = tmp_path / "lock", WrongClock(seed)
    leader, watch = StoreLock(path), Watch(path, STEP, clock)
    passed = 0.0
    for _ in range(300):
        clock.now += STEP
        passed += STEP
        if passed >= BEAT_SECONDS:
            leader.beat()
            passed = 0.0
        if clock.chance.random() < 0.2:
            clock.jump()
        assert watch.stalled() is None
    steps = 0
    while watch.stalled() is None:  # it sends no more heartbeats
        clock.now += STEP
        steps += 1
    assert watch.stalled() == Leader(path.stat().st_ino, os.getpid())
    assert LEASE_SECONDS - STEP <= steps * STEP <= LEASE_SECONDS + 3 * STEP
    leader.close()


@pytest.mark.parametrize("content", [b"", b"00000000000000000007\n"])
def test_a_lock_file_need_not_tell_the_leader(tmp_path: Path, content: bytes) -> None:
    path, clock = tmp_path / "lock", WrongClock(0)
    path.write_bytes(content)
    watch = Watch(path, STEP, clock)
    while (stalled := watch.stalled()) is None:
        clock.now += STEP
    assert stalled == Leader(path.stat().st_ino, None)


def test_what_counts_as_standing_still() -> None:
    assert not stood_still(5.0, 5.0, 0.5)
    assert not stood_still(5.0, 6.0, 0.5)
    assert stood_still(5.0, 6.1, 0.5)
    assert stood_still(5.0, 4.9, 0.5)


def test_a_test_may_ask_for_a_wrong_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_VARIABLE, str(tmp_path / "clock"))
    clock = chosen_clock()
    before = clock()
    (tmp_path / "clock").write_text("3600")
    assert 3600 <= clock() - before < 4200
