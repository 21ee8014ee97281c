"""The environment variables that the programs, the library and their containers read, and a warning about others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["VARIABLES", "unknown_variables"]

PREFIX: Final = "SWITCHML_"

_NAMES: Final = """
CONFIG CONTROLLER INSECURE RUN_DIR TLS
FABRIC_ADDRESS FABRIC_AGENTS FABRIC_CERTIFICATES FABRIC_DELAY FABRIC_DROP FABRIC_DUPLICATE FABRIC_FLIP FABRIC_LEAF
FABRIC_PROCESS FABRIC_PROGRAM FABRIC_RACKS FABRIC_SEED FABRIC_SLOTS FABRIC_SWITCH FABRIC_THREADS FABRIC_TOPOLOGY
FABRIC_TRANSPORT FABRIC_VALUES FABRIC_WORKERS
JOB JOB_DIR JOB_NAME JOB_SLOTS JOB_SWITCH MASTER_SOCKET RANK WORLD_SIZE
AGENT AGGREGATORS DIRECT METRICS MPI_LEAST_BYTES MPI_REPORT ON_FAILURE SLOTS
STAGE_CUDA TORCH_FALLBACK TORCH_SKIP_ZEROS TORCH_WIRE
AGENT_DSCP AGENT_INSECURE AGENT_METRICS AGENT_METRICS_TOKEN AGENT_THREADS AGENT_TLS SWITCH_SOCKET
CONTROLLER_CONFIG CONTROLLER_INSECURE CONTROLLER_LISTEN CONTROLLER_LOG_FORMAT CONTROLLER_LOG_LEVEL
CONTROLLER_LOG_LIMIT CONTROLLER_METRICS CONTROLLER_METRICS_TOKEN CONTROLLER_READY_FILE CONTROLLER_STANDBY
CONTROLLER_STORE CONTROLLER_TLS
SWITCH_DELAY SWITCH_DEVICE_ID SWITCH_DPDK_EAL SWITCH_DPDK_MTU SWITCH_DPDK_PORT SWITCH_DROP SWITCH_DUPLICATE
SWITCH_FLIP SWITCH_FRAME_PORT SWITCH_GRPC SWITCH_INSECURE SWITCH_LOG_FORMAT SWITCH_LOG_LEVEL SWITCH_LOG_LIMIT
SWITCH_METRICS SWITCH_METRICS_TOKEN SWITCH_PACKET_PORT SWITCH_POLL SWITCH_READY_FILE SWITCH_SEED SWITCH_SHARDS
SWITCH_SHM_PORT SWITCH_SHM_THREADS SWITCH_SLOTS SWITCH_TLS SWITCH_UDP_PORT SWITCH_VALUES SWITCH_XDP_PORT
ADDRESS AGENT_OPTIONS MAC P4RUNTIME PORT PROGRAM STATE_DIR SWITCH_ADDRESS SWITCH_MAC TARGET
RECORD BENCH_DAEMONS BENCH_WIRE PTF_NAMESPACE TEST_CLOCK
"""

VARIABLES: Final = frozenset(PREFIX + name for name in _NAMES.split())
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
