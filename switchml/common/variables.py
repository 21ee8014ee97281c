"""The environment variables that the programs, the library and their containers read, and a warning about others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["OTHERS", "PREFIX", "VARIABLES", "unknown_variables"]

PREFIX: Final = "SWITCHML_"

_OF_OPTIONS: Final = """
CONFIG CONTROLLER INSECURE RUN_DIR TLS
FABRIC_ADDRESS FABRIC_AGENTS FABRIC_CERTIFICATES FABRIC_DELAY FABRIC_DROP FABRIC_DUPLICATE FABRIC_FLIP FABRIC_LEAF
FABRIC_PROGRAM FABRIC_RACKS FABRIC_SEED FABRIC_SLOTS FABRIC_SWITCH FABRIC_THREADS FABRIC_TOPOLOGY
FABRIC_TRANSPORT FABRIC_VALUES FABRIC_WORKERS JOB_SLOTS JOB_SWITCH AGGREGATORS
AGENT AGENT_DSCP AGENT_INSECURE AGENT_METRICS AGENT_METRICS_TOKEN AGENT_THREADS AGENT_TLS SWITCH_SOCKET
CONTROLLER_CONFIG CONTROLLER_INSECURE CONTROLLER_LISTEN CONTROLLER_LOG_FORMAT CONTROLLER_LOG_LEVEL
CONTROLLER_LOG_LIMIT CONTROLLER_METRICS CONTROLLER_METRICS_TOKEN CONTROLLER_READY_FILE CONTROLLER_STANDBY
CONTROLLER_STORE CONTROLLER_TLS
SWITCH_DELAY SWITCH_DEVICE_ID SWITCH_DPDK_EAL SWITCH_DPDK_MTU SWITCH_DPDK_PORT SWITCH_DROP SWITCH_DUPLICATE
SWITCH_FLIP SWITCH_FRAME_PORT SWITCH_GRPC SWITCH_INSECURE SWITCH_LOG_FORMAT SWITCH_LOG_LEVEL SWITCH_LOG_LIMIT
SWITCH_METRICS SWITCH_METRICS_TOKEN SWITCH_PACKET_PORT SWITCH_POLL SWITCH_READY_FILE SWITCH_SEED SWITCH_SHARDS
SWITCH_SHM_PORT SWITCH_SHM_THREADS SWITCH_SLOTS SWITCH_TLS SWITCH_UDP_PORT SWITCH_VALUES SWITCH_XDP_PORT
"""
"""Those that replace an option, whose help describes them."""

OTHERS: Final[dict[str, dict[str, str]]] = {
    "Libraries": {
        "JOB": "Id or name of the job, or the key with which its ranks meet.",
        "JOB_NAME": "Name of a job that ranks begin together, without a command; it need not be unique.",
        "RANK": "The rank of this process; without it RANK.",
        "WORLD_SIZE": "The number of ranks; without it WORLD_SIZE.",
        "SLOTS": "Slots of a job that ranks begin together; default: the switch's.",
        "ON_FAILURE": "Policy of such a job for the loss of a rank: abort (default), shrink or restart.",
        "DIRECT": "0: all calls go over the switch, also where the ranks of one host could add the values themselves.",
        "METRICS": "[HOST:]PORT at which a training process serves metrics; LOCAL_RANK is added to the port.",
        "TORCH_FALLBACK": "gloo, gloo-exact or none: what PyTorch's groups do without a switch; default: none.",
        "STAGE_CUDA": "1: PyTorch's groups take CUDA tensors, and copy them through pinned memory; default: 0.",
        "TORCH_WIRE": "How floating-point numbers of PyTorch's groups travel; default: auto.",
        "TORCH_SKIP_ZEROS": "on, off or auto: whether PyTorch's groups leave out blocks of zeros; default: off.",
        "MPI_LEAST_BYTES": "The size from which the MPI library sends calls through the network; default: 1048576.",
        "MPI_REPORT": "1: rank 0 of an MPI program says at the end which calls went through the network.",
    },
    "Set for the commands of a job": {
        "JOB_DIR": "The job's directory, with its logs; a command may write files there.",
        "MASTER_SOCKET": "Abstract Unix socket that passes on the socket listening at MASTER_PORT.",
    },
    "Containers and service managers": {
        "ADDRESS": "IPv4 address of a container; default: that of its host name.",
        "AGENT_OPTIONS": "Further options of an agent, for its systemd unit and for Slurm's prolog.",
        "MAC": "MAC address of the data interface of an agent's container.",
        "P4RUNTIME": "HOST:PORT of the switch's P4Runtime server, for the controller's container.",
        "PORT": "Switch port of an agent's container; default: 1.",
        "PROGRAM": "P4 program of BMv2 for its containers: switchml (default) or switchml_floats.",
        "STATE_DIR": "Directory of the store, for the controller's container.",
        "SWITCH_ADDRESS": "Name or IPv4 address of the switch's data plane, for containers and Slurm's scripts.",
        "SWITCH_MAC": "MAC address of the switch's data plane, for the controller's container.",
        "TARGET": "Target of the switch for the controller's container: soft (default) or bmv2.",
    },
    "Internal": {
        "FABRIC_PROCESS": "NAME@RUN_DIR: marks the processes of an embedded fabric, so that `down` finds them.",
        "RECORD": "The recording of a training's collectives by `switchml-ctl advise`, in JSON.",
        "BENCH_DAEMONS": "The process ids whose CPU time a benchmark's ranks measure.",
        "BENCH_WIRE": "The wire of the calls of a benchmark's ranks.",
        "PTF_NAMESPACE": "1: the packet tests run in this network namespace rather than in a new one.",
        "TEST_CLOCK": "File with the time of a clock that tests move.",
    },
}
"""All others, by their users, with what they mean. docs/reference/settings.md is made from it."""

VARIABLES: Final = frozenset(PREFIX + name for names in (_OF_OPTIONS.split(), *OTHERS.values()) for name in names)
"""All variables. A test compares this list with the sources and with the options of the programs."""

_OF_KUBERNETES: Final = re.compile(r"\w+_SERVICE_(HOST|PORT\w*)|\w+_PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?")
"""Variables that Kubernetes sets in every pod for each service, such as one named switchml-controller."""


def unknown_variables(environ: Mapping[str, str]) -> str:
    """Return a warning about variables with the prefix that nothing reads; an empty string if all are known."""
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in VARIABLES)
    unknown = [name for name in unknown if not _OF_KUBERNETES.fullmatch(name)]
    if not unknown:
        return ""
    from difflib import get_close_matches

    near = {name: "".join(get_close_matches(name, VARIABLES, 1)) for name in unknown}
    told = [f"{name} (did you mean {nearest}?)" if nearest else name for name, nearest in near.items()]
    return f"these environment variables are unknown and have no effect: {', '.join(told)}"
