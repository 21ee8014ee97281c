"""All-reduce inside the network: the arrays of all workers are summed by the switch.

import switchml

with switchml.connect() as comm:
    comm.all_reduce(gradient, op="avg")
"""

from switchml.communicator import DEFAULT_TIMEOUT, Communicator
from switchml.connecting import connect
from switchml.errors import (
    AgentLost,
    CollectiveMismatch,
    CollectiveTimeout,
    CommunicatorClosed,
    ConnectError,
    EpochSpent,
    IntegrityError,
    JobEnded,
    NonFiniteError,
    SwitchLost,
    SwitchMLError,
    UnsupportedTensor,
    WorkerLost,
    WorldChanged,
)
from switchml.metrics import MetricsServer, serve_metrics
from switchml.version import VERSION
from switchml.work import Work

__version__ = VERSION

__all__ = [
    "connect",
    "Communicator",
    "Work",
    "DEFAULT_TIMEOUT",
    "MetricsServer",
    "serve_metrics",
    "SwitchMLError",
    "ConnectError",
    "UnsupportedTensor",
    "NonFiniteError",
    "CollectiveTimeout",
    "CollectiveMismatch",
    "IntegrityError",
    "WorkerLost",
    "WorldChanged",
    "JobEnded",
    "SwitchLost",
    "EpochSpent",
    "AgentLost",
    "CommunicatorClosed",
    "__version__",
]
