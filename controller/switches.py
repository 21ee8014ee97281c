"""The switches of the fabric: their connections, their epochs, and the tables that they must hold."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

from switchml.common.deadline import within
from switchml.common.shared_readings import SharedReadings
from switchml.controller.config import SwitchConfig, ports_between_switches, switch_trees
from switchml.controller.drivers import MAX_NONCE, Driver, JobTables, PortLoss, SwitchContents
from switchml.controller.errors import InvalidRequest, NoRoom, PermissionDenied, SwitchNotFound, SwitchUnavailable
from switchml.controller.store.database import EPOCHS_OF_A_NONCE, Store
from switchml.controller.store.events import EventKind
from switchml.dataplane.constants import Verdict

__all__ = ["MAX_EPOCH", "ManagedSwitch", "Switches"]

_LOG = logging.getLogger(__name__)

MAX_EPOCH = 0xFFFF


class ManagedSwitch:
    """One switch, with the controller's data about it.

    ``lock`` is held while tables change, so that a comparison with the store never sees an incomplete job.
    """

    def __init__(self, config: SwitchConfig, driver: Driver) -> None:
        self.config = config
        self.driver = driver
        self.lock = asyncio.Lock()
        self.drained = False  # no new jobs are placed on it
        self.neighbours: dict[int, str] = {}  # the switches at its ports that lead to one
        self.last_told = False  # true if the last event in the log is that it was connected
        self.last_vouched = 0  # the last epoch that may be used under the nonce which the switch keeps
        self._changed = asyncio.Event()  # its connection has changed since `wait_connected` looked at it

    @property
    def name(self) -> str:
        """The configured name."""
        return self.config.name

    @property
    def highest_port(self) -> int:
        """The highest port number that it may have."""
        return self.config.target.highest_port

    @property
    def tenant(self) -> str:
        """The only tenant whose agents and jobs may use it; empty if all may."""
        return self.config.tenant

    def require_tenant(self, tenant: str) -> None:
        """Check that agents and jobs of this tenant may use it.

        Raises:
            PermissionDenied: it is for another tenant.

        """
        if self.tenant not in ("", tenant):
            whose = f"those of tenant {tenant}" if tenant else "those without a tenant"
            raise PermissionDenied(
                f"switch {self.name} is for agents and jobs of tenant {self.tenant}, and not for {whose}; name another"
                " switch, or let an administrator remove `tenant` from the switch in the controller's configuration"
            )

    def connection_changed(self) -> None:
        """Wake the tasks that wait for its connection."""
        self._changed.set()

    async def wait_connected(self, seconds: float) -> None:
        """Return when there is a connection to it, or after some seconds without one."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(asyncio.TimeoutError):
            while not self.driver.connected:
                self._changed.clear()
                await within(deadline - time.monotonic(), self._changed.wait())

    @property
    def ready(self) -> bool:
        """True if jobs can start on it."""
        return self.driver.connected and self.driver.primary and not self.drained

    def why_not_ready(self) -> str:
        """Return the reason why no job can start on it."""
        if self.drained:
            return f"switch {self.name} is drained; `switchml-ctl switch undrain {self.name}` opens it for new jobs"
        why = self.driver.failure or "another controller is its primary"
        return f"switch {self.name} at {self.config.control} is not available: {why}"


class Switches:
    """All configured switches; `trees` are the trees that their configurations describe."""

    def __init__(self, switches: Iterable[ManagedSwitch], store: Store) -> None:
        self._store = store
        self._readings: SharedReadings[tuple[SwitchContents, dict[Verdict, int]]] = SharedReadings()
        self.on_change: Callable[[ManagedSwitch], None] = lambda _: None  # of a switch's connection
        self._switches = {switch.name: switch for switch in switches}
        self.trees = switch_trees([switch.config for switch in self], levels=len(self._switches))
        for (name, port), neighbour in ports_between_switches(switch.config for switch in self).items():
            self._switches[name].neighbours[port] = neighbour
        for switch in self._switches.values():
            switch.driver.on_connection = functools.partial(self._connection_changed, switch)
        for name in store.drained_switches() & self._switches.keys():
            self._switches[name].drained = True

    def __iter__(self) -> Iterator[ManagedSwitch]:
        return iter(self._switches.values())

    def _connection_changed(self, switch: ManagedSwitch, connected: bool) -> None:
        switch.connection_changed()
        if connected and not switch.last_told:
            role = "as its primary" if switch.driver.primary else "standing by: another controller is its primary"
            self._store.events.record(EventKind.SWITCH_CONNECTED, role, switch=switch.name)
            switch.last_told = True
        elif not connected and switch.last_told:
            asyncio.get_running_loop().call_soon(self._note_lost, switch)  # the driver sets the reason first
        asyncio.get_running_loop().call_soon(lambda: self.on_change(switch))

    def _note_lost(self, switch: ManagedSwitch) -> None:
        if not switch.driver.connected and switch.driver.failure:  # otherwise it is only being prepared again
            self._store.events.record(EventKind.SWITCH_LOST, switch.driver.failure, switch=switch.name)
            switch.last_told = False

    def get(self, name: str) -> ManagedSwitch:
        """Return a switch by name; without a name, the only one.

        Raises:
            SwitchNotFound: no switch has this name.
            InvalidRequest: there are several and no name was given.

        """
        if not name and len(self._switches) == 1:
            return next(iter(self._switches.values()))
        if not name and self._switches:
            raise InvalidRequest(f"there are several switches; name one of {', '.join(self._switches)}")
        if name not in self._switches:
            known = ", ".join(self._switches) or "none"
            raise SwitchNotFound(f"no switch has the name {name!r}; configured: {known}")
        return self._switches[name]

    def candidates(self, name: str, tenant: str) -> list[ManagedSwitch]:
        """Return the switches that a tenant's job could start on: of all, or of the named one and those below it.

        Raises:
            SwitchNotFound: no switch of this name, or none for this tenant, is configured.
            PermissionDenied: the named one is for another tenant.
            SwitchUnavailable: none is ready; the message says why.

        """
        usable = [switch for switch in self if switch.tenant in ("", tenant)]
        wanted = [self.get(name)] if name else usable
        for switch in wanted:
            switch.require_tenant(tenant)
        if not wanted:
            whose = "switch for this tenant" if self._switches else "switch"
            raise SwitchNotFound(f"no {whose} is configured; add a [[switches]] table to the configuration")
        ready = [switch for switch in wanted if switch.ready]
        if not ready:
            raise SwitchUnavailable("; ".join(switch.why_not_ready() for switch in wanted))
        below = self.trees.below(name) if name else []
        return ready + [switch for switch in usable if switch.ready and switch.name in below and switch.name != name]

    def next_epoch(self, switches: Sequence[ManagedSwitch], tenant: str) -> int:
        """Return an epoch that none of these switches has used since its registers were empty.

        A tenant may use as many epochs of a switch as it leaves to all others, so it can at no time use them up.

        Raises:
            NoRoom: all epochs are used up, or the tenant has used as many as are left.

        """
        names = [switch.name for switch in switches]
        last, name = max((self._store.last_epoch(name) or 0, name) for name in names)
        left, used = MAX_EPOCH - last, self._store.epochs_of_tenant(tenant, names)
        if used < left:
            return last + 1
        why = f"switch {name} has used up its {MAX_EPOCH} epochs"
        if left:
            whose = f"tenant {tenant}" if tenant else "no tenant"
            why = f"jobs of {whose} have used {used} epochs of switch {name}, and the last {left} are for others"
        raise NoRoom(
            f"{why}; let the jobs on it end, then its epochs start over",
            epochs=MAX_EPOCH,
            epochs_left=left,
            epochs_of_tenant=used,
        )

    async def renew_epochs(self, switch: ManagedSwitch, tenant: str) -> None:
        """Empty the registers of a switch without jobs if a tenant can have no more epochs, and count from 1 again."""
        try:
            self.next_epoch([switch], tenant)
        except NoRoom:
            async with switch.lock:
                before = self._store.last_epoch(switch.name)
                await switch.driver.reload()
                now = self._store.last_epoch(switch.name) or 0
                # A job that came during the reload keeps its epoch, and the count goes on behind it.
                await self._begin_history(switch, last=0 if now == before else now)
                await switch.driver.reconcile([])

    async def vouch(self, switch: ManagedSwitch, epoch: int) -> None:
        """Make a switch, whose lock is held, keep a nonce under which an epoch that is in the store can be used.

        Each nonce is for some epochs. An older copy of the store does not know the nonces of later ones, and skips the
        rest of those that it knows, so no copy assigns an epoch that the registers can hold.

        Raises:
            SwitchUnavailable, SwitchRefused: the switch does not take the nonce.

        """
        if epoch <= switch.last_vouched:
            return
        nonce = _new_nonce()
        self._store.set_nonces(switch.name, await switch.driver.read_nonce(), nonce)
        await switch.driver.write_nonce(nonce)
        self._store.set_nonces(switch.name, nonce, nonce)
        switch.last_vouched = epoch | (EPOCHS_OF_A_NONCE - 1)

    async def run(self, prepare: Callable[[ManagedSwitch, str], Sequence[JobTables]]) -> None:
        """Keep all switches connected until cancelled.

        Each time a switch is connected, `prepare` is called with the switch and, if its registers have lost their
        contents, what happened to it; it returns the jobs whose tables the switch must hold.
        """
        tasks = [
            asyncio.create_task(switch.driver.run(self._preparation(switch, prepare)), name=f"switch {switch.name}")
            for switch in self._switches.values()
        ]
        try:
            await asyncio.gather(*tasks, asyncio.Event().wait())  # runs until cancelled, also without switches
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _preparation(
        self, switch: ManagedSwitch, prepare: Callable[[ManagedSwitch, str], Sequence[JobTables]]
    ) -> Callable[[bool], Awaitable[None]]:
        async def run(loaded: bool) -> None:
            async with switch.lock:
                what = "was restarted" if loaded else ""
                if not loaded and await switch.driver.read_nonce() not in self._store.nonces(switch.name):
                    # Its registers may hold epochs that this store would assign again.
                    what = (
                        "was emptied because this store does not know what its registers hold (another store has used"
                        " it, this is an older copy of the store, or the switch had another name)"
                    )
                    _LOG.warning("switch %s %s", switch.name, what)
                    await switch.driver.reload()
                if what:
                    await self._begin_history(switch, self._store.last_epoch(switch.name) or 0)
                await switch.driver.reconcile(prepare(switch, what))

        return run

    async def _begin_history(self, switch: ManagedSwitch, last: int) -> None:
        """Give a switch whose registers are empty a nonce; the next epoch is `last` + 1.

        If this fails, the switch keeps no nonce that the store knows, and is emptied when it is connected again.
        """
        nonce = _new_nonce()
        switch.last_vouched = 0
        self._store.begin_history(switch.name, nonce, last)
        await switch.driver.write_nonce(nonce)
        switch.last_vouched = last | (EPOCHS_OF_A_NONCE - 1)
        _LOG.info("switch %s starts over with empty registers", switch.name)

    async def read(self, name: str) -> tuple[ManagedSwitch, SwitchContents, dict[Verdict, int]]:
        """Return a switch with its current contents, and its packets of all jobs by verdict.

        Raises:
            SwitchNotFound, InvalidRequest: like ``get``.
            SwitchUnavailable, SwitchRefused: it cannot be read.

        """
        switch = self.get(name)
        return switch, *await self._readings.get(switch.name, functools.partial(self._read, switch))

    async def _read(self, switch: ManagedSwitch) -> tuple[SwitchContents, dict[Verdict, int]]:
        contents = await switch.driver.read_contents()
        job_ids = self._store.job_ids(switch.name)
        return contents, await switch.driver.read_verdicts(job_ids) if job_ids else dict.fromkeys(Verdict, 0)

    def drain(self, name: str, drained: bool) -> ManagedSwitch:
        """Set whether new jobs may be placed on a switch; running jobs continue.

        Raises:
            SwitchNotFound, InvalidRequest: like ``get``.

        """
        switch = self.get(name)
        self._store.set_drained(switch.name, drained)
        switch.drained = drained
        _LOG.warning("switch %s is %s", switch.name, "drained" if drained else "open for new jobs again")
        return switch

    async def set_loss(
        self, name: str, ports: Collection[int], shares: Mapping[str, float], agent_ports: Iterable[int]
    ) -> list[PortLoss]:
        """Make ports of a switch lose shares of their packets on purpose; return all ports that lose packets now.

        The default ports are `agent_ports` and those that lose packets now. `shares` are by direction, ingress and
        egress; a direction that is not given stays unchanged.

        Raises:
            SwitchNotFound, InvalidRequest: like ``get``; or a share or a port is not allowed or missing.
            SwitchUnavailable, SwitchRefused: it cannot be set.

        """
        switch = self.get(name)
        for direction, share in shares.items():
            if not 0 <= share <= 1:  # NaN is not either
                raise InvalidRequest(f"{direction} loss {share} is not a share from 0 to 1")
        if not shares:
            raise InvalidRequest("give the share of packets to lose: of incoming packets, of outgoing packets, or both")
        for port in ports:
            if not 1 <= port <= switch.highest_port:
                raise InvalidRequest(f"port {port} is not one of 1 to {switch.highest_port}")
        async with switch.lock:
            meant = set(ports) or {*agent_ports, *(loss.port for loss in await switch.driver.set_loss([], {}))}
            if not meant:
                raise InvalidRequest(
                    f"no agent is attached to switch {switch.name}; name the ports that must lose packets"
                )
            return await switch.driver.set_loss(sorted(meant), shares)


def _new_nonce() -> int:
    return secrets.randbelow(MAX_NONCE) + 1
