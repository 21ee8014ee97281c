"""The epochs of switches: no tenant can use up those that others need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchml.controller.config import SwitchConfig
from switchml.controller.errors import NoRoom
from switchml.controller.records import Job, JobSwitch
from switchml.controller.store.database import Store
from switchml.controller.switches import ManagedSwitch, Switches
from switchml.dataplane.targets import SOFT
from tests.unit.recording_driver import RecordingDriver

MOST = 200


class Fabric:
    """Some switches, and their store in a file."""

    def __init__(self, path: Path) -> None:
        self.store = Store(path)
        names = ("spine", "leaf-1", "leaf-2")
        configs = [SwitchConfig(name, SOFT, "127.0.0.1", p4runtime="x:1") for name in names]
        self.switches = Switches([ManagedSwitch(one, RecordingDriver([])) for one in configs], self.store)

    def take(self, tenant: str, *names: str) -> int:
        """Return the epoch of a new job of this tenant on these switches."""
        epoch = self.switches.next_epoch([self.switches.get(name) for name in names], tenant)
        places = [JobSwitch(name, epoch, slot_base=0, slots=2, group=1) for name in names]
        self.store.create_job(Job(0, 1, "j", 1, 64, 1.0, switches=places, tenant=tenant))
        return epoch

    def take_all(self, tenant: str, *names: str) -> int:
        """Take epochs until the tenant is refused; return their number."""
        taken: list[int] = []
        with contextlib.suppress(NoRoom):
            while True:
                taken.append(self.take(tenant, *names))
        return len(taken)


@pytest.fixture
def fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fabric]:
    monkeypatch.setattr("switchml.controller.switches.MAX_EPOCH", MOST)
    made = Fabric(tmp_path / "store.sqlite")
    yield made
    made.store.close()


def test_a_tenant_uses_as_many_epochs_as_it_leaves(fabric: Fabric) -> None:
    assert fabric.take_all("south", "spine") == MOST // 2
    with pytest.raises(NoRoom, match="jobs of tenant south have used 100 epochs of switch spine, and the last 100 are"):
        fabric.take("south", "spine")
    assert fabric.take("north", "spine") == MOST // 2 + 1
    assert fabric.take_all("north", "spine") == MOST // 4 - 1
    assert fabric.take("east", "spine") == MOST // 4 * 3 + 1
    assert fabric.take_all("south", "leaf-1") == MOST // 2  # each switch has its own


def test_what_a_tenant_uses_is_remembered(fabric: Fabric, tmp_path: Path) -> None:
    fabric.take_all("south", "spine")
    fabric.store.close()
    again = Fabric(tmp_path / "store.sqlite")
    assert again.take_all("south", "spine") == 0
    again.store.begin_history("spine", nonce=1, last=0)
    assert again.take_all("south", "spine") == MOST // 2
    fabric.store = again.store


def test_a_tenant_cannot_use_up_a_switch_through_others(fabric: Fabric) -> None:
    """A job on two switches passes over all epochs that one of them has used."""
    fabric.take_all("south", "leaf-1")
    assert fabric.take("north", "spine") == 1
    assert fabric.take_all("south", "spine", "leaf-1") == 0
    fabric.take_all("south", "leaf-2")
    assert fabric.take_all("south", "spine", "leaf-2") == 0
    assert fabric.store.last_epoch("spine") == 1


def test_the_epochs_that_a_switch_passes_over_count_for_those_who_used_them(fabric: Fabric) -> None:
    fabric.take_all("south", "spine")
    assert fabric.take("north", "spine", "leaf-1") == MOST // 2 + 1
    assert fabric.take_all("south", "leaf-1") == 0
    assert fabric.take_all("north", "leaf-1") == MOST // 4 - 1
