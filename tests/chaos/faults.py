"""The faults that can happen to a fabric while it has a job."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from switchml.common.errors import StartError
from tests.chaos.fabric_under_fire import FabricUnderFire

EMBEDDED: Final = ("shm", "udp")
MOUNTS: Final = os.geteuid() == 0
NAMESPACES: Final = ("soft",) if os.geteuid() == 0 and shutil.which("ip") else ()
BMV2: Final = ("bmv2",) if NAMESPACES and shutil.which("simple_switch_grpc") else ()
NFT: Final = NAMESPACES + BMV2 if shutil.which("nft") else ()
ALL: Final = EMBEDDED + NAMESPACES + BMV2


@dataclass(frozen=True)
class Fault:
    """A fault; its target and duration are chosen at random from the run's seed.

    `harmless`: ranks may notice only a delay. `kinds` are the fabrics to which it can happen; `up` are options of the
    fabric. `names` are the errors that report it.
    """

    strike: Callable[[FabricUnderFire], None]
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ALL
    up: tuple[str, ...] = ()
    small_disk: bool = False  # the fabric's files are on a separate disk, just large enough
    repair: Callable[[FabricUnderFire], None] = field(default=lambda _: None)

    @property
    def harmless(self) -> bool:
        return not self.names


def _from_the_start(fire: FabricUnderFire) -> None:
    fire.struck()  # the fault exists since the fabric was started, and the job begins now


def _cut(fire: FabricUnderFire) -> None:
    fire.cut_links(fire.chance.uniform(0.05, 2.0))


def _damage(how: Callable[[FabricUnderFire], None]) -> Callable[[FabricUnderFire], None]:
    """Damage the store while no controller runs; a controller may refuse to start with it."""

    def strike(fire: FabricUnderFire) -> None:
        try:
            fire.kill_and_restart("controller", lambda: how(fire))
        except StartError as refusal:
            text = str(refusal)
            assert "controller.sqlite" in text, f"the error does not name the store: {text}"
            assert "Traceback" not in text, text
            fire.notes.append("refused")

    return strike


def _put_store_away(fire: FabricUnderFire) -> None:
    """Move the store away, as the controller's message says, if the controller refuses to work with it."""
    if "refused" in fire.notes or not fire.controller_works():
        fire.begin_without_store()


def _damage_live(fire: FabricUnderFire) -> None:
    fire.struck()
    fire.overwrite_store()


def _fill(fire: FabricUnderFire) -> None:
    """Prevent the controller's files from growing, for a while or to the end of the job."""
    pid = fire.process("controller")["pid"]
    fire.struck()
    fire.limit_files(pid, min(path.stat().st_size for path in fire.store_files()))


def _empty(fire: FabricUnderFire) -> None:
    fire.limit_files(fire.process("controller")["pid"], -1)


def _fill_disk(fire: FabricUnderFire) -> None:
    """Prevent the fabric from writing any file, including logs, for a while or to the end of the job."""
    fire.struck()
    fire.fill_disk()


def _jump(fire: FabricUnderFire) -> None:
    """Let the clocks by which controller and agents judge each other's silence jump, both ways, by up to a day."""
    fire.struck()
    for _ in range(fire.chance.randint(1, 5)):
        seconds = fire.chance.choice([-1, 1]) * 10 ** fire.chance.uniform(-1, 5)
        fire.clock.write_text(f"{seconds:.3f}")
        time.sleep(fire.chance.uniform(0, 0.7))


LOST_RANK: Final = ("WorkerLost", "AgentLost")
FAULTS: Final[dict[str, Fault]] = {
    "worker killed": Fault(lambda fire: fire.kill(fire.worker_pid()), (*LOST_RANK, "JobEnded")),
    "worker stopped": Fault(lambda fire: fire.stop(fire.worker_pid())),
    "agent killed": Fault(lambda fire: fire.kill(fire.process("agent")["pid"]), (*LOST_RANK, "JobEnded")),
    "agent stopped": Fault(lambda fire: fire.stop(fire.process("agent")["pid"])),
    "switch killed": Fault(lambda fire: fire.kill(fire.process("switch")["pid"]), ("SwitchLost",)),
    "switch killed and restarted": Fault(lambda fire: fire.kill_and_restart("switch"), ("SwitchLost",)),
    "switch stopped": Fault(lambda fire: fire.stop(fire.process("switch")["pid"])),
    "controller killed": Fault(lambda fire: fire.kill(fire.process("controller")["pid"])),
    "controller killed and restarted": Fault(lambda fire: fire.kill_and_restart("controller")),
    "controller stopped": Fault(lambda fire: fire.stop(fire.process("controller")["pid"])),
    "store overwritten": Fault(
        _damage(FabricUnderFire.overwrite_store), ("JobEnded",), repair=_put_store_away, kinds=EMBEDDED
    ),
    "store truncated": Fault(
        _damage(FabricUnderFire.truncate_store), ("JobEnded",), repair=_put_store_away, kinds=EMBEDDED
    ),
    "store overwritten under the controller": Fault(
        _damage_live, ("JobEnded",), repair=_put_store_away, kinds=EMBEDDED
    ),
    "store's disk full": Fault(_fill, repair=_empty, kinds=EMBEDDED),
    "disk full": Fault(
        _fill_disk, kinds=EMBEDDED if MOUNTS else (), small_disk=True, repair=FabricUnderFire.empty_disk
    ),
    "link cut and healed": Fault(_cut),
    "clocks jump": Fault(_jump),
    "5 % of packets lost": Fault(lambda fire: fire.lose(0.05), repair=lambda fire: fire.lose(0.0)),
    "2 % of packets duplicated": Fault(_from_the_start, kinds=EMBEDDED + NAMESPACES, up=("--duplicate", "0.02")),
    "2 % of packets reordered": Fault(_from_the_start, kinds=EMBEDDED + NAMESPACES, up=("--delay", "0.02")),
    "a bit flipped in 0.1 % of packets": Fault(
        _from_the_start, ("IntegrityError",), kinds=EMBEDDED + NAMESPACES, up=("--flip", "0.001")
    ),
    "a bit flipped in 1 % of the packets at hosts": Fault(
        FabricUnderFire.flip_bits, ("IntegrityError",), kinds=NFT, repair=FabricUnderFire.flip_no_bits
    ),
}
