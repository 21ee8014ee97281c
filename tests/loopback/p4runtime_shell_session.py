"""A session of p4runtime-shell, as typed by a user; run by its own interpreter (see test_p4runtime_shell.py).

Arguments: address of the switch, file with the p4info, file with the device config. Prints JSON.
"""

import json
import sys
from typing import Any

import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeWriteException
from p4runtime_sh.shell import CounterEntry, FwdPipeConfig, MulticastGroupEntry, P4Objects, P4Type, TableEntry


def session(address: str, p4info: str, device_config: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    # The first connection sets the pipeline; the second one uses only what the switch returns.
    sh.setup(device_id=1, grpc_addr=address, election_id=(0, 1), config=FwdPipeConfig(p4info, device_config))
    sh.teardown()
    sh.setup(device_id=1, grpc_addr=address, election_id=(0, 2))
    seen["api_version"] = sh.APIVersion()
    seen["tables"] = [table.name for table in P4Objects(P4Type.table)]

    rank = TableEntry("SwitchMLEgress.rank_table")(action="SwitchMLEgress.address_rank")
    rank.match["job"], rank.match["rank"] = "3", "1"
    rank.action["eth_dst"], rank.action["ipv4_dst"], rank.action["udp_dst"] = "02:00:00:00:00:01", "10.0.0.1", "4000"
    rank.action["ranks"] = "2"
    rank.insert()
    worker = TableEntry("SwitchMLIngress.worker_table")(action="SwitchMLIngress.admit")
    for name, value in {"ingress_port": "1", "eth_src": "0", "ipv4_src": "10.0.0.1", "udp_src": "4000"}.items():
        worker.match[name] = value
    worker.match["job"], worker.match["worker"], worker.match["slot"] = "3", "1", "0x40&&&0xffc0"
    worker.match["secret"], worker.match["kind"] = "6210279", "1"
    for name, value in {"worker_bit": "2", "job_mask": "3", "epoch": "7", "group": "3"}.items():
        worker.action[name] = value
    worker.priority = 1
    worker.insert()
    seen["entries"] = [str(e.msg()) for table in (rank, worker) for e in TableEntry(table.name).read()]

    rank.action["udp_dst"] = "4001"
    rank.modify()
    seen["modified"] = [str(e.msg()) for e in TableEntry("SwitchMLEgress.rank_table").read()]
    rank.delete()
    seen["deleted"] = [str(e.msg()) for e in TableEntry("SwitchMLEgress.rank_table").read()]
    try:
        rank.delete()
    except P4RuntimeWriteException as error:
        seen["error"] = str(error)

    group = MulticastGroupEntry(3).add(1, 0).add(2, 1)
    group.insert()
    seen["group"] = [[r.egress_port, r.instance] for g in MulticastGroupEntry(3).read() for r in g.replicas]
    group.delete()
    seen["groups_left"] = len(list(MulticastGroupEntry().read()))
    seen["counters"] = len(list(CounterEntry("drop_counter").read()))
    sh.teardown()
    return seen


if __name__ == "__main__":
    print(json.dumps(session(*sys.argv[1:])))  # noqa: T201
