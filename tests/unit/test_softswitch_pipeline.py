"""The native switch's control operations, without packets."""

from typing import Any, Literal

import pytest

from switchml.dataplane.constants import Kind
from switchml.dataplane.softswitch._native import DevicePortSpec, Switch, UdpPortSpec, WorkerMatch

KEY: dict[str, Any] = {
    "port": 1,
    "eth_src": 0,
    "ipv4_src": 0x7F000001,
    "sender": 4000,
    "job": 7,
    "worker": 0,
    "slot_value": 16,
    "slot_mask": 0xFFF0,
    "priority": 1,
    "kind": int(Kind.CONTRIBUTION),
    "secret": 0,
}
WORKER = WorkerMatch(**KEY)
ADMIT: dict[str, Any] = {"bit": 1, "mask": 3, "epoch": 9, "group": 7}


@pytest.fixture
def switch() -> Switch:
    return Switch(slots=16, values=4)


def test_sizes_are_checked() -> None:
    for slots, values, named in [(0, 4, "slots"), (32769, 4, "slots"), (1, 0, "values"), (1, 2049, "values")]:
        with pytest.raises(ValueError, match=named):
            Switch(slots, values)
    Switch(32768, 2048)  # memory is allocated when it is touched


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("slot_epoch", 0xFFFF),
        ("slot_phase", 0xFFFFFFFF),
        ("slot_bitmap", 0xFFFFFFFFFFFFFFFF),
        ("slot_exponent", 0xFFFF),
        ("slot_check", 0xFFFFFFFF),
        ("slot_next", 0xFFFFFFFF),
        ("slot_owner", 0xFF),
        ("lane_0", 0xFFFFFFFF),
        ("lane_3", 0xFFFFFFFF),
    ],
)
def test_registers_are_read_and_written(switch: Switch, name: str, most: int) -> None:
    assert switch.read_register(name, 31) == 0
    switch.write_register(name, 31, most)
    switch.write_register(name, 30, 1)
    assert switch.read_register(name, 31) == most
    assert switch.read_register(name, 30) == 1
    assert switch.read_register(name, 29) == 0
    with pytest.raises(ValueError, match="register value" if most > 0xFFFFFFFF else name):
        switch.write_register(name, 0, most + 1)
    with pytest.raises(ValueError, match=f"{name} has no index 32"):
        switch.read_register(name, 32)


@pytest.mark.parametrize("name", ["lane_4", "lane_", "lane_00", "lane_-1", "lane_1x", "slots", ""])
def test_unknown_registers(switch: Switch, name: str) -> None:
    with pytest.raises(KeyError, match="no register"):
        switch.read_register(name, 0)


def test_worker_entry_keeps_its_counter_when_modified(switch: Switch) -> None:
    switch.set_worker(WORKER, **ADMIT)
    assert switch.worker_counter(WORKER) == (0, 0)
    switch.write_worker_counter(WORKER, 5, 600)
    switch.set_worker(WORKER, bit=1, mask=3, epoch=10, group=7)
    assert switch.worker_counter(WORKER) == (5, 600)
    switch.delete_worker(WORKER)
    switch.set_worker(WORKER, **ADMIT)
    assert switch.worker_counter(WORKER) == (0, 0)


@pytest.mark.parametrize("name", KEY)
def test_worker_entries_differ_by_every_key(switch: Switch, name: str) -> None:
    switch.set_worker(WORKER, **ADMIT)
    changed = {"slot_value": 32, "slot_mask": 0xFFFE}.get(name, KEY[name] + 1)
    other = WorkerMatch(**{**KEY, name: changed})
    with pytest.raises(KeyError, match="worker_table"):
        switch.worker_counter(other)
    switch.set_worker(other, **ADMIT)
    switch.write_worker_counter(other, 1, 2)
    assert switch.worker_counter(WORKER) == (0, 0)
    switch.delete_worker(other)
    switch.delete_worker(WORKER)
    with pytest.raises(KeyError, match="worker 0"):
        switch.delete_worker(WORKER)


def test_worker_slot_value_must_lie_in_its_mask(switch: Switch) -> None:
    with pytest.raises(ValueError, match="outside its mask"):
        switch.set_worker(WorkerMatch(**{**KEY, "slot_value": 17}), **ADMIT)


def test_deleting_what_is_not_there(switch: Switch) -> None:
    switch.set_job(7, 16, 0xFFF0)
    switch.set_rank(7, 0, 0, 1, 2)
    switch.set_group(7, [(1, 0), (1, 1)])
    switch.delete_job(7)
    switch.delete_rank(7, 0)
    switch.delete_group(7)
    with pytest.raises(KeyError, match="job 7"):
        switch.delete_job(7)
    with pytest.raises(KeyError, match="rank 0 of job 7"):
        switch.delete_rank(7, 0)
    with pytest.raises(KeyError, match="group 7"):
        switch.delete_group(7)


def test_l2_entries_are_set_and_deleted(switch: Switch) -> None:
    switch.set_l2(0x020000000001, ("forward", 1))
    switch.set_l2(0x020000000001, ("flood", 65535))
    switch.set_l2_default(("flood", 1))
    switch.set_l2_default(("drop_no_route",))
    switch.delete_l2(0x020000000001)
    with pytest.raises(KeyError, match="02:00:00:00:00:01"):
        switch.delete_l2(0x020000000001)
    with pytest.raises(ValueError, match="eth_dst"):
        switch.set_l2(1 << 48, ("forward", 1))
    with pytest.raises(ValueError, match="port is 512"):
        switch.set_l2(1, ("forward", 512))
    with pytest.raises(ValueError, match="group is 65536"):
        switch.set_l2_default(("flood", 65536))


@pytest.mark.parametrize("action", [(), ("forward",), ("drop_no_route", 1), ("drop", 1), ("flood", "1"), (1, 1)])
def test_l2_actions_are_checked(switch: Switch, action: Any) -> None:
    with pytest.raises(ValueError, match="is not an action of l2_table"):
        switch.set_l2(1, action)
    with pytest.raises(ValueError, match="is not an action of l2_table"):
        switch.set_l2_default(action)


@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_loss_entries_are_set_and_deleted(switch: Switch, direction: Literal["ingress", "egress"]) -> None:
    switch.set_loss(3, direction, 0xFFFFFFFF)  # the port need not exist
    switch.set_loss(3, direction, 0)
    switch.delete_loss(3, direction)
    with pytest.raises(KeyError, match=f"loss_{direction}_table has no port 3"):
        switch.delete_loss(3, direction)
    with pytest.raises(ValueError, match="threshold is 4294967296"):
        switch.set_loss(3, direction, 1 << 32)
    with pytest.raises(ValueError, match="port is 512"):
        switch.set_loss(512, direction, 0)


def test_directions_are_checked(switch: Switch) -> None:
    sideways: Any = "sideways"
    with pytest.raises(ValueError, match="'sideways'; it must be 'ingress' or 'egress'"):
        switch.set_loss(3, sideways, 0)
    with pytest.raises(ValueError, match="direction"):
        switch.delete_loss(3, sideways)


def test_numbers_that_do_not_fit_name_themselves(switch: Switch) -> None:
    with pytest.raises(ValueError, match="job is 65536"):
        switch.set_job(65536, 0, 0)
    with pytest.raises(ValueError, match="job is -1"):
        switch.set_job(-1, 0, 0)
    with pytest.raises(ValueError, match="mask is 18446744073709551616"):
        switch.set_worker(WORKER, bit=1, mask=1 << 64, epoch=1, group=1)
    with pytest.raises(ValueError, match="eth_src is 281474976710656; it must be 0 to 281474976710655"):
        WorkerMatch(**{**KEY, "eth_src": 1 << 48})
    with pytest.raises(ValueError, match="port is 512"):
        switch.set_group(1, [(512, 0)])
    with pytest.raises(ValueError, match="eth_dst"):
        switch.set_rank(1, 0, 1 << 48, 0, 0)
    with pytest.raises(ValueError, match="drop_counter index is 32"):
        switch.read_drop_counter(32)
    with pytest.raises(ValueError, match="job_counter index is 16384"):
        switch.write_job_counter(16384, 0, 0)


def test_a_key_is_made_with_its_keywords_only() -> None:
    with pytest.raises(TypeError, match="there is no keyword colour"):
        WorkerMatch(**KEY, colour=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="job is missing"):
        WorkerMatch(**{name: value for name, value in KEY.items() if name != "job"})
    with pytest.raises(TypeError, match="job is not an int: '7'"):
        WorkerMatch(**{**KEY, "job": "7"})
    with pytest.raises(TypeError, match="incompatible"):
        WorkerMatch(*KEY.values())  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="address is not of type str: 3"):
        UdpPortSpec(address=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"queues is not of type .*Sequence\[object\]: 3"):
        DevicePortSpec(queues=3, busy=False)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="busy is not of type bool: 3"):
        DevicePortSpec(queues=[], busy=3)  # type: ignore[arg-type]


def test_counters_are_read_and_written(switch: Switch) -> None:
    switch.write_drop_counter(31, 3, 400)
    switch.write_job_counter(16383, 5, 1 << 40)
    assert switch.read_drop_counter(31) == (3, 400)
    assert switch.read_drop_counter(30) == (0, 0)
    assert switch.read_job_counter(16383) == (5, 1 << 40)


def test_reset_begins_a_new_pipeline(switch: Switch) -> None:
    switch.set_worker(WORKER, **ADMIT)
    switch.set_job(7, 16, 0xFFF0)
    switch.write_drop_counter(1, 1, 1)
    switch.write_register("lane_3", 31, 1)
    switch.set_l2(9, ("forward", 1))
    switch.set_loss(1, "egress", 1)
    switch.reset(slots=32, values=8)
    with pytest.raises(KeyError):
        switch.worker_counter(WORKER)
    with pytest.raises(KeyError):
        switch.delete_job(7)
    with pytest.raises(KeyError):
        switch.delete_l2(9)
    with pytest.raises(KeyError):
        switch.delete_loss(1, "egress")
    assert switch.read_drop_counter(1) == (0, 0)
    assert switch.read_register("lane_7", 63) == 0
    assert switch.read_register("lane_3", 31) == 0
    with pytest.raises(ValueError, match="values"):
        switch.reset(32, 0)
    assert switch.read_register("lane_7", 63) == 0  # a reset that fails changes nothing


def test_ports_that_are_not_there(switch: Switch) -> None:
    with pytest.raises(KeyError, match="no port 3"):
        switch.port_counters(3)
    with pytest.raises(KeyError, match="no port 3"):
        switch.set_faults(3, 0, 0, 0, 1)


def test_stop_and_start_may_be_repeated(switch: Switch) -> None:
    switch.stop()
    switch.start()
    switch.start()
    switch.stop()
    switch.stop()
