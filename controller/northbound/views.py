"""Conversion of the controller's objects to the messages of the interface."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Mapping

from switchml.common.names import parse_job_reference
from switchml.common.shared_readings import SharedReadings
from switchml.common.turns import turn
from switchml.controller.admission.slots import SlotAllocator
from switchml.controller.agents import AgentSession
from switchml.controller.drivers import MulticastGroup, PortLoss, SwitchContents, TableEntry
from switchml.controller.jobs.ending import read_counters
from switchml.controller.jobs.live import LiveJob
from switchml.controller.jobs.register import JobRegister
from switchml.controller.proto import events_pb2 as events_pb
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import EpochChange, Job, JobSwitch, Rank
from switchml.controller.store.events import Event
from switchml.controller.switches import ManagedSwitch
from switchml.dataplane.constants import Verdict

__all__ = [
    "JobViews",
    "agent_view",
    "event_view",
    "job_view",
    "loss_view",
    "referred_job",
    "switch_detail",
    "switch_view",
]

_WATCH_SECONDS = 1.0
_READINGS = 32  # of different jobs at once; switches refuse the controller more calls than 256, also those that matter


class JobViews:
    """The current views of jobs."""

    def __init__(self, jobs: JobRegister) -> None:
        self._jobs = jobs
        self._counters: SharedReadings[dict[str, int]] = SharedReadings()
        self._at_once = asyncio.Semaphore(_READINGS)

    async def view(self, job: Job) -> pb.Job:
        """Return a job as it is now; wait for the end of a job that is ending."""
        live = self._jobs.get(job)
        if live is not None and live.written and live.ending is None:
            counters = await self._counters.get(job.key, functools.partial(self._read_counters, live))
            if live.ending is None:  # otherwise the final reading is in progress, and this one is older
                job.counters = counters
        if live is not None and live.ending is not None:
            await asyncio.wait({live.ending})
        await turn()
        return job_view(job)

    async def _read_counters(self, live: LiveJob) -> dict[str, int]:
        async with self._at_once:
            return await read_counters(live)

    async def watch(self, job: Job) -> AsyncIterator[pb.Job]:
        """Yield a job now, after each change and each second, until it has ended."""
        while True:
            yield await self.view(job)
            live = self._jobs.get(job)
            if live is None:
                return
            if live.job.live:
                await live.updated.wait(_WATCH_SECONDS)


def referred_job(reference: pb.JobReference) -> int | str | None:
    """Return the id or the name by which a request refers to a job; None if it refers to no job."""
    kind = reference.WhichOneof("reference")
    if kind is None:
        return None
    return reference.id if kind == "id" else parse_job_reference(reference.name)


def job_view(job: Job) -> pb.Job:
    """Return a job with its switches and ranks."""
    return pb.Job(
        id=job.id,
        name=job.name,
        state=f"JOB_STATE_{job.state.name}",
        failure=job.failure,
        workers=job.workers,
        epoch=job.epoch,
        switches=[_place_view(place) for place in job.switches],
        values_per_packet=job.values_per_packet,
        ranks=[_rank_view(rank) for rank in job.ranks],
        created=job.created,
        ended=job.ended,
        counters=job.counters,
        key=job.key,
        on_failure=f"ON_FAILURE_{job.on_failure.name}",
        generation=job.generation,
        changes=[_change_view(change) for change in job.epoch_changes],
        tenant=job.tenant,
        priority=job.priority,
    )


def _place_view(place: JobSwitch) -> pb.JobSwitch:
    return pb.JobSwitch(
        switch=place.switch,
        epoch=place.epoch,
        slot_base=place.slot_base,
        slots=place.slots,
        group=place.group,
        upstream=place.upstream,
    )


def _rank_view(rank: Rank) -> pb.Rank:
    return pb.Rank(
        rank=rank.rank,
        state=f"RANK_STATE_{rank.state.name}",
        agent=rank.agent,
        switch=rank.switch,
        host=rank.host,
        agent_socket=rank.socket,
        position=rank.position,
        exit_code=rank.exit_code,
        counters=rank.counters,
        worker=rank.worker,
        idle_seconds=time.monotonic() - rank.moved,
    )


def _change_view(change: EpochChange) -> pb.EpochChange:
    return pb.EpochChange(
        epoch=change.epoch,
        workers=change.workers,
        lost=change.lost,
        joined=change.joined,
        reason=change.reason,
        time=change.time,
    )


def agent_view(session: AgentSession, ranks_in_use: int) -> pb.Agent:
    """Return an agent, with the number of ranks of live jobs that it carries.

    Its instance, by which it opens its session again, is known only to itself.
    """
    registration = pb.Register()
    registration.CopyFrom(session.registration)
    registration.ClearField("instance")
    return pb.Agent(
        name=session.name,
        registration=registration,
        live=session.live,
        last_heartbeat=session.last_heartbeat,
        ranks_in_use=ranks_in_use,
        tenant=session.tenant,
        shared=session.shared,
    )


def switch_view(switch: ManagedSwitch, pool: SlotAllocator) -> pb.Switch:
    """Return a switch with the use of its slots."""
    return pb.Switch(
        name=switch.name,
        target=switch.config.target.name,
        control_address=switch.config.control,
        connected=switch.driver.connected,
        primary=switch.driver.primary,
        data_address=switch.config.address,
        data_udp_port=switch.config.udp_port,
        values_per_packet=switch.driver.capabilities.values_per_packet,
        slots=pool.size,
        slots_free=pool.free_slots,
        largest_free_range=pool.largest_free_range,
        failure=switch.driver.failure,
        control_version=switch.driver.api_version,
        drained=switch.drained,
        jobs=pool.ranges_used,
        parent=switch.config.parent.switch if switch.config.parent is not None else "",
    )


def switch_detail(switch: pb.Switch, contents: SwitchContents, verdicts: Mapping[Verdict, int]) -> pb.SwitchDetail:
    """Return a switch with its contents."""
    return pb.SwitchDetail(
        switch=switch,
        entries=map(_entry_view, contents.entries),
        groups=map(_group_view, contents.groups),
        verdicts={verdict.name.lower(): packets for verdict, packets in verdicts.items()},
        drop_reasons={reason.name.lower(): packets for reason, packets in contents.drop_reasons.items()},
        losses=map(loss_view, contents.losses),
    )


def _entry_view(entry: TableEntry) -> pb.TableEntry:
    return pb.TableEntry(
        table=entry.table,
        match=entry.match,
        action=entry.action,
        parameters=entry.parameters,
        packets=entry.packets,
    )


def _group_view(group: MulticastGroup) -> pb.MulticastGroup:
    replicas = [pb.MulticastGroup.Replica(port=port, instance=instance) for port, instance in group.replicas]
    return pb.MulticastGroup(id=group.id, replicas=replicas)


def loss_view(loss: PortLoss) -> pb.PortLoss:
    """Return the shares of packets that a port loses."""
    return pb.PortLoss(port=loss.port, ingress=loss.ingress, egress=loss.egress)


def event_view(event: Event) -> events_pb.Event:
    """Return an event of the log."""
    return events_pb.Event(
        number=event.number,
        time=event.time,
        kind=event.kind,
        level=event.level,
        job_key=event.job_key,
        job=event.job,
        job_name=event.job_name,
        epoch=event.epoch,
        rank=event.rank,
        agent=event.agent,
        switch=event.switch,
        actor=event.actor,
        detail=event.detail,
    )
