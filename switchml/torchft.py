"""SwitchML as a process group of torchft, whose replicas may die and return while the others go on training.

    manager = torchft.Manager(pg=ProcessGroupSwitchML(timeout=timedelta(seconds=30)), ...)

It needs the extra `switchml[torchft]`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from switchml.common.installation import install_command

try:
    from torchft.process_group import ProcessGroupWrapper
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(f"{_error}; switchml.torchft needs torchft: {install_command('torchft')}") from _error

from torch._C._distributed_c10d import _DistributedBackendOptions

from switchml.torch.options import Options
from switchml.torch.process_group import SwitchMLProcessGroup

__all__ = ["ProcessGroupSwitchML"]


class ProcessGroupSwitchML(ProcessGroupWrapper):  # type: ignore[misc]
    """A group of replicas. Each quorum of torchft is a new job of the switch, which begins with its first collective.

    The ranks of a job leave it when the next quorum begins, or when this object is shut down, aborted or deleted.
    """

    _pg: SwitchMLProcessGroup | None = None

    def __init__(self, timeout: timedelta = timedelta(seconds=60), options: Options | None = None) -> None:
        """Make a group that torchft will configure.

        Args:
            timeout: the default timeout of collectives, and of joining a job, positive.
            options: the options of each job's process group; None for those of `switchml.torch.configure` and the
                environment.

        Raises:
            ValueError: `timeout` is not positive.

        """
        if timeout <= timedelta(0):
            raise ValueError(f"timeout is {timeout}; it must be positive")
        super().__init__(timeout)
        self._options = options

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return "torchft-switchml"."""
        return "torchft-switchml"

    def errored(self) -> Exception | None:
        """Return the error after which the current quorum's collectives cannot go on; None while they can."""
        return None if self._pg is None else self._pg.error

    def shutdown(self) -> None:
        """Leave the job."""
        group, self._pg = self._pg, None
        if group is not None:
            group.shutdown()

    def __del__(self) -> None:
        """Leave the job, so that the other ranks do not wait for this one."""
        self.shutdown()

    def _create_pg(self, store: Any, rank: int, world_size: int) -> SwitchMLProcessGroup:
        options = _DistributedBackendOptions()
        options.store, options.timeout = store, self._timeout
        options.group_rank, options.group_size = rank, world_size
        # Not the default group, which could be the job under which this process was started: a quorum may have fewer
        # ranks than that.
        options.group_id, options.global_ranks_in_group = f"torchft-{self._quorum_id}", list(range(world_size))
        return SwitchMLProcessGroup(options, self._options)
