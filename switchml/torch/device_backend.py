"""SwitchML as one back end of a group that has several, as in "cpu:switchml,cuda:nccl".

Such a group is c10d's own, and asks its back ends for collectives. Since PyTorch 2.14 Python can derive from
`c10d::Backend`; in earlier versions it cannot, and torch would silently drop the other back end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from switchml.torch.errors import SwitchMLBackendError
from switchml.torch.options import Options
from switchml.torch.process_group import SwitchMLProcessGroup
from switchml.torch.torch_version import BEFORE_2_14

__all__ = ["DeviceBackend", "make_backend", "switchml_group"]

_NAME: Final = "switchml"
_COLLECTIVES: Final = (
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "scatter",
    "send",
)
"""The methods by which `c10d::PyBackend` calls Python; the group has them under the same names."""


class DeviceBackend(Backend):  # type: ignore[misc]
    """The back end of a group for some of its devices.

    Attributes:
        group: what makes the collectives.

    """

    # C++ asks for each of these by its name. Those that Python would inherit ask C++ again, without end.
    supports_splitting = True
    supports_coalescing = supports_reconfigure = supports_shrinking = supports_window = False
    supports_time_estimate = _supports_time_estimate = False

    def __init__(self, group: SwitchMLProcessGroup) -> None:
        super().__init__(group.rank(), group.size())
        self.group = group
        for name in _COLLECTIVES:
            setattr(self, name, getattr(group, name))
        self.allreduce_sparse = group.allreduce

    def getBackendName(self) -> str:  # noqa: N802 - the name by which C++ finds it
        """Return "switchml"."""
        return self.group.getBackendName()

    @property
    def options(self) -> Backend.Options:
        """The options that C++ copies for a part, and gives to `split`."""
        return Backend.Options(_NAME, self.group.timeout)

    def split(self, _store: Any, ranks: Sequence[int], opts: Backend.Options) -> DeviceBackend:
        """Make the back end of a group of some ranks of this one.

        Its rendezvous is in the store of this group, under the name of the new one.

        Raises:
            SwitchMLBackendError: this rank is not one of them. C++ cannot be told so; it would end the process.

        """
        group = self.group.split_group(ranks, opts._timeout, group_name=opts.group_name)
        if group is None:
            raise SwitchMLBackendError(
                f"split_group leaves out rank {self.group.rank()}, which PyTorch {torch.__version__} cannot do where "
                "switchml is one of several back ends; use new_group"
            )
        return DeviceBackend(group)

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Do nothing: the default group has joined the network already, and others join with their first collective."""

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Do nothing: ranks that are not in a part of this group have no part in making it."""

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """Wait until all ranks have called this; rank 0 raises an error that names those that have not."""
        self.group.monitored_barrier(opts.timeout, wait_all_ranks)

    def set_timeout(self, timeout: Any) -> None:
        """Set the default timeout of collectives."""
        self.group.set_timeout(timeout)

    def shutdown(self) -> None:
        """Leave the job; collectives in flight fail."""
        self.group.shutdown()

    def abort(self) -> None:
        """Leave the job at once; the other ranks are told that this rank is lost."""
        self.group.abort()

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: the group has no such number, and finds ranks with other calls by itself."""


def make_backend(backend_options: Any, options: Options | None, backends: Mapping[str, str]) -> Any:
    """Return what `init_process_group` wants of a back end: a whole group, or the part of one for some devices.

    Args:
        backend_options: c10d's `_DistributedBackendOptions`.
        options: those of the group, or None.
        backends: the name of the back end of each device.

    Raises:
        SwitchMLBackendError: devices have different back ends, and this version of PyTorch has no such part, or would
            wrap it to debug it.

    """
    if set(backends.values()) <= {_NAME}:
        return SwitchMLProcessGroup(backend_options, options)
    if BEFORE_2_14:
        ours = "cpu" if backends.get("cpu") == _NAME else next(iter(backends))
        text = ",".join(f"{device}:{name}" for device, name in backends.items())
        raise SwitchMLBackendError(
            f'PyTorch {torch.__version__} makes no group with the back ends "{text}": it would have that of {ours} for '
            'all devices. Make two groups, such as init_process_group("gloo") and new_group(backend="switchml"), or '
            "install PyTorch 2.14 or later"
        )
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        # torch's wrapper keeps only C++'s part of a back end alive, and asks it for sequence numbers, which none has.
        raise SwitchMLBackendError(
            f"TORCH_DISTRIBUTED_DEBUG=DETAIL makes PyTorch {torch.__version__} wrap the back ends of a group that has "
            "several, and its wrapper fails with switchml, which is in Python; use TORCH_DISTRIBUTED_DEBUG=INFO, or "
            'init_process_group("switchml")'
        )
    # NCCL and others have separate options.
    return DeviceBackend(SwitchMLProcessGroup(backend_options, options if isinstance(options, Options) else None))


def switchml_group(group: dist.ProcessGroup) -> SwitchMLProcessGroup | None:
    """Return the part of a process group that uses the switch: the group itself, or that of one of its devices."""
    if isinstance(group, SwitchMLProcessGroup):
        return group
    for device in group._device_types:
        backend = group._get_backend(device)
        if isinstance(backend, DeviceBackend):
            return backend.group
    return None
