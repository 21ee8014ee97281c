"""All-reduce inside the network: the arrays of all workers are summed by the switch.

import switchml

with switchml.connect() as comm:
    comm.all_reduce(gradient, op="avg")

Importing this package loads nothing else: each name below is imported from its module when it is first used. So the
daemons and the command line, which are modules of this package, start without numpy and the library's native code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from switchml.common.version import VERSION

if TYPE_CHECKING:
    from switchml.client.communicator import DEFAULT_TIMEOUT, Communicator, Statistics
    from switchml.client.connecting import connect
    from switchml.client.errors import (
        AgentLost,
        CollectiveMismatch,
        CollectiveTimeout,
        CommunicatorClosed,
        ConnectError,
        EpochSpent,
        IntegrityError,
        JobEnded,
        NonFiniteError,
        RankClosed,
        SwitchLost,
        SwitchMLError,
        UnsupportedTensor,
        WorkerLost,
        WorldChanged,
    )
    from switchml.client.metrics import MetricsServer, serve_metrics
    from switchml.client.wire import Blocks, Codes, Floats, Integers, Wire, parse_wire
    from switchml.client.work import Work

__version__ = VERSION

__all__ = [
    "connect",
    "Communicator",
    "Statistics",
    "Work",
    "Wire",
    "Blocks",
    "Integers",
    "Codes",
    "Floats",
    "parse_wire",
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
    "RankClosed",
    "JobEnded",
    "SwitchLost",
    "EpochSpent",
    "AgentLost",
    "CommunicatorClosed",
    "__version__",
]

_ERRORS: Final = "switchml.client.errors"  # the module of every exported name that is not listed below
_MODULES: Final = {
    "connect": "switchml.client.connecting",
    "Communicator": "switchml.client.communicator",
    "Statistics": "switchml.client.communicator",
    "Work": "switchml.client.work",
    "DEFAULT_TIMEOUT": "switchml.client.communicator",
    **dict.fromkeys(("Wire", "Blocks", "Integers", "Codes", "Floats", "parse_wire"), "switchml.client.wire"),
    "MetricsServer": "switchml.client.metrics",
    "serve_metrics": "switchml.client.metrics",
}

if not TYPE_CHECKING:  # a type checker that saw this function would accept any name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        _require_native_code()
        value = getattr(import_module(_MODULES.get(name, _ERRORS)), name)
        globals()[name] = value  # from now on the name is found without this function
        return value


def _require_native_code() -> None:
    """Raise ImportError if this folder is a source folder whose native code was not compiled.

    Python imports from the folder that it is started in before it looks at what is installed.
    """
    from importlib.util import find_spec

    found = find_spec("switchml._native")
    if found is None or found.origin is None:  # only the folder of its type stubs
        from pathlib import Path

        source = Path(__file__).resolve().parents[1]
        raise ImportError(
            f"switchml is imported from {source}, a source folder whose native code was not compiled: start Python in "
            f"another folder, or run `pip install --editable {source}`"
        )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
