"""The SDE's own client with SwitchML's BfRt server, in a separate process, because message names collide.

Called with the server's address; prints the results of its reads as JSON.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any

import bfrt_grpc.client as client

interface = client.ClientInterface(
    sys.argv[1], client_id=7, device_id=0, notifications=client.Notifications(enable_port_status_change=True)
)
info = interface.bfrt_info_get("switchml")
interface.bind_pipeline_config("switchml")
target = client.Target(device_id=0, pipe_id=0xFFFF)
seen: dict[str, Any] = {}


def dictionaries(found: Iterable[tuple[Any, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(data.to_dict(), key.to_dict() if key is not None else {}) for data, key in found]


workers = info.table_get("worker_table")
key = workers.make_key(
    [
        client.KeyTuple("ingress_port", 4),
        client.KeyTuple("eth_src", 0x020000000001),
        client.KeyTuple("ipv4_src", 0x0A000001),
        client.KeyTuple("udp_src", 40000),
        client.KeyTuple("kind", 1),
        client.KeyTuple("job", 1),
        client.KeyTuple("worker", 0),
        client.KeyTuple("secret", 0x5EC2E7),
        client.KeyTuple("slot", 0, 0xFFE0),
        client.KeyTuple("$MATCH_PRIORITY", 3),
    ]
)
arguments = {"worker_bit": 1, "job_mask": 3, "epoch": 5, "group": 1}
data = workers.make_data([client.DataTuple(n, v) for n, v in arguments.items()], "SwitchMLIngress.admit")
workers.entry_add(target, [key], [data])
try:
    workers.entry_add(target, [key, key], [data, data])
except client.BfruntimeReadWriteRpcException as error:
    seen["twice"] = [(index, one.canonical_code, one.message) for index, one in error.sub_errors_get()]
seen["worker"] = dictionaries(workers.entry_get(target, [key], {"from_hw": True}))
workers.operations_execute(target, "SyncCounters")
seen["usage"] = list(workers.usage_get(target))

address = info.table_get("switch_address_table")
place = [client.DataTuple("mac", 1), client.DataTuple("ip", 2)]
address.default_entry_set(target, address.make_data(place, "SwitchMLIngress.set_switch_address"))
seen["address"] = dictionaries(address.default_entry_get(target))

nodes, groups = info.table_get("$pre.node"), info.table_get("$pre.mgid")
node_key = nodes.make_key([client.KeyTuple("$MULTICAST_NODE_ID", 5)])
node = [
    client.DataTuple("$MULTICAST_RID", 9),
    client.DataTuple("$MULTICAST_LAG_ID", int_arr_val=[]),
    client.DataTuple("$DEV_PORT", int_arr_val=[4, 5]),
]
nodes.entry_add(target, [node_key], [nodes.make_data(node)])
group_key = groups.make_key([client.KeyTuple("$MGID", 1)])
group = [
    client.DataTuple("$MULTICAST_NODE_ID", int_arr_val=[5]),
    client.DataTuple("$MULTICAST_NODE_L1_XID_VALID", bool_arr_val=[False]),
    client.DataTuple("$MULTICAST_NODE_L1_XID", int_arr_val=[0]),
]
groups.entry_add(target, [group_key], [groups.make_data(group)])
seen["groups"] = dictionaries(groups.entry_get(target))
seen["nodes"] = dictionaries(nodes.entry_get(target))
groups.entry_del(target, [group_key])
nodes.entry_del(target, [node_key])

names, ports = info.table_get("$PORT_STR_INFO"), info.table_get("$PORT")
found = dictionaries(names.entry_get(target, [names.make_key([client.KeyTuple("$PORT_NAME", "1/0")])]))
number = found[0][0]["$DEV_PORT"]
ports.attribute_port_status_change_set(target, True)
port = [
    client.DataTuple("$SPEED", str_val="BF_SPEED_100G"),
    client.DataTuple("$FEC", str_val="BF_FEC_TYP_REED_SOLOMON"),
    client.DataTuple("$PORT_ENABLE", bool_val=True),
]
ports.entry_add(target, [ports.make_key([client.KeyTuple("$DEV_PORT", number)])], [ports.make_data(port)])
seen["up"] = interface.portstatus_notification_get(timeout=30).port_up
seen["ports"] = dictionaries(ports.entry_get(target))

counter = info.table_get("job_counter")
counter_key = counter.make_key([client.KeyTuple("$COUNTER_INDEX", 3)])
cell = [client.DataTuple("$COUNTER_SPEC_PKTS", 8), client.DataTuple("$COUNTER_SPEC_BYTES", 800)]
counter.entry_mod(target, [counter_key], [counter.make_data(cell)])
counter.operations_execute(target, "Sync")
seen["counter"] = dictionaries(counter.entry_get(target, [counter_key]))

register = info.table_get("slot_exponent")
(field,) = register.info.data_field_name_list_get()
register_key = register.make_key([client.KeyTuple("$REGISTER_INDEX", 3)])
register.entry_mod(target, [register_key], [register.make_data([client.DataTuple(field, 7)])])
register.operations_execute(target, "Sync")
seen["register"] = [next(iter(data.values())) for data, _ in dictionaries(register.entry_get(target, [register_key]))]

workers.entry_del(target)
seen["left"] = list(workers.usage_get(target))
seen["loaded"] = interface.get_and_set_pipeline_config()
sys.stdout.write(json.dumps(seen) + "\n")
interface.tear_down_stream()
