"""finsy, an independent P4Runtime client, drives the soft switch."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import finsy as fy
import pytest

from tests.support.p4_messages import P4INFO_PATH, info
from tests.support.soft_switch import Client, SwitchProcess

DEVICE_CONFIG = b'{"values_per_packet": 64, "slots": 32}'


class _DeviceConfig:
    def __bytes__(self) -> bytes:
        return DEVICE_CONFIG


ELECTION_IDS = itertools.count(10)  # ids only grow, because the switch remembers the highest one


def options() -> fy.SwitchOptions:
    return fy.SwitchOptions(p4info=P4INFO_PATH, p4blob=_DeviceConfig(), initial_election_id=next(ELECTION_IDS))


async def read(switch: fy.Switch, entities: Any) -> list[Any]:
    reading: Any = switch.read(entities)  # finsy declares a coroutine
    return [entry async for entry in reading]


async def test_pipeline_tables_and_entries(switch_process: SwitchProcess) -> None:
    async with fy.Switch("soft", switch_process.address, options()) as switch:
        assert switch.is_primary
        assert switch.p4info.pkg_info.name == "switchml"

        worker = fy.P4TableEntry(
            "worker_table",
            match=fy.Match(
                ingress_port=1,
                eth_src=0,
                ipv4_src=0x0A000001,
                udp_src=4000,
                kind=1,
                job=3,
                worker=0,
                secret=0x5EC2E7,
                slot=(0x40, 0xFFC0),
            ),
            action=fy.Action("admit", worker_bit=1, job_mask=3, epoch=7, group=3),
            priority=1,
        )
        address = fy.P4TableEntry(
            "switch_address_table",
            action=fy.Action("set_switch_address", mac=0x020000000001, ip=0x0A000001),
            is_default_action=True,
        )
        group = fy.P4MulticastGroupEntry(3, replicas=((1, 0), (1, 1), (2, 2)), metadata=b"job")
        await switch.write([+worker, ~address, +group])

        found = await read(switch, fy.P4TableEntry())
        assert found == [worker]
        found = await read(switch, fy.P4TableEntry("switch_address_table", is_default_action=True))
        assert found == [address]
        groups = await read(switch, fy.P4MulticastGroupEntry())
        assert groups[0].replicas_str() == "1 1#1 2#2"
        assert groups[0].metadata == b"job"

        await switch.write([~fy.P4RegisterEntry("slot_epoch", index=63, data=9)])
        (register,) = await read(switch, fy.P4RegisterEntry("slot_epoch", index=63))
        assert register.data == 9
        counters = await read(switch, fy.P4CounterEntry("drop_counter"))
        assert len(counters) == 32

        await switch.delete_all()
        assert await read(switch, [fy.P4TableEntry(), fy.P4MulticastGroupEntry()]) == []


async def test_lists_tables_with_the_p4info_of_the_switch(switch_process: SwitchProcess) -> None:
    with Client(switch_process.address, next(ELECTION_IDS)) as primary:
        primary.set_config()
    async with fy.Switch("soft", switch_process.address, fy.SwitchOptions(initial_election_id=1)) as switch:
        names = {table.alias for table in switch.p4info.tables}
        assert names == {table.preamble.alias for table in info().tables}
        assert {"worker_table", "rank_table"} <= names


async def test_a_bad_write_says_which_update(switch_process: SwitchProcess) -> None:
    missing = fy.P4TableEntry("rank_table", match=fy.Match(job=1, rank=1))
    bad_group = fy.P4MulticastGroupEntry(4, replicas=(77,))
    async with fy.Switch("soft", switch_process.address, options()) as switch:
        with pytest.raises(fy.P4ClientError) as raised:
            await switch.delete([missing])
        assert raised.value.is_not_found_only
        with pytest.raises(fy.P4ClientError) as raised:
            await switch.write([-missing, +bad_group])
        assert not raised.value.is_not_found_only
        assert raised.value.details[1].canonical_code == fy.GRPCStatusCode.INVALID_ARGUMENT
        assert "no port 77" in raised.value.details[1].message


async def test_primary_hands_over(switch_process: SwitchProcess) -> None:
    async with fy.Switch("first", switch_process.address, options()) as first:
        overtaken = first.ee.event_future(fy.SwitchEvent.BECOME_BACKUP)
        async with fy.Switch("second", switch_process.address, options()) as second:
            assert second.is_primary
            await asyncio.wait_for(overtaken, 30)
            with pytest.raises(fy.P4ClientError) as raised:
                await first.insert([fy.P4MulticastGroupEntry(4)])
            assert raised.value.code == fy.GRPCStatusCode.PERMISSION_DENIED
        regained = first.ee.event_future(fy.SwitchEvent.BECOME_PRIMARY)
        if not first.is_primary:
            await asyncio.wait_for(regained, 30)
        await first.insert([fy.P4MulticastGroupEntry(4)])
