"""The process group that `init_process_group("switchml")` makes.

Python cannot derive from `c10d::Backend`, but it can derive from `ProcessGroup`, whose most important methods are also
called by C++ (DDP's reducer, functional collectives). The group contains a real Gloo group, registered as the backend
for the CPU, so that methods that are not overridden here go to Gloo without any Python code.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, _DistributedBackendOptions

from switchml.client.calls import SkipZeros
from switchml.client.errors import UnsupportedTensor
from switchml.client.wire import Wire
from switchml.torch import recording
from switchml.torch.collectives import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Collective,
    Conditions,
    Reduce,
    ReduceScatter,
    WireReduce,
    WireScatter,
)
from switchml.torch.disagreement import other_calls
from switchml.torch.errors import SwitchMLBackendError, forked_error
from switchml.torch.gloo_reductions import GlooReduction
from switchml.torch.group import Group, make_gloo
from switchml.torch.operands import Operand, require_device, require_writable
from switchml.torch.options import Options, current_options
from switchml.torch.paths import Link, Path, path_of
from switchml.torch.queue import NetworkQueue
from switchml.torch.reductions import Reduction, reduction_of
from switchml.torch.routes import InNetwork
from switchml.torch.sparse_tensors import SparseAllReduce
from switchml.torch.statistics import count
from switchml.torch.tracing import never_compiled
from switchml.torch.works import completed_after
from switchml.torch.wrapped_tensors import on_plain_tensors

__all__ = ["SwitchMLProcessGroup"]

_MOVED_AS: Final = {
    torch.int16: torch.float16,
    torch.uint16: torch.float16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
}
"""For each dtype that Gloo does not support, one of the same size that it does, for operations that only move data."""
_UNSET: Final = timedelta(0)  # c10d's "no timeout given" is below it


@never_compiled
class SwitchMLProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A group whose sums are made by the switch. `switchml.torch.path_of` returns the path of each collective."""

    def __init__(self, backend_options: Any, options: Options | None = None) -> None:
        """Make the group; all of its ranks must do this.

        Args:
            backend_options: c10d's `_DistributedBackendOptions`. Its timeout is the default one of collectives, and
                that of the store's operations. Groups other than the default group join the network with their first
                collective.
            options: the group's options; None for those of `configure` and the environment.

        Raises:
            SwitchMLBackendError: the default group cannot be a job of the switch, and there is no fallback.
            TypeError: `options` is not an `Options`.

        """
        if options is not None and not isinstance(options, Options):
            raise TypeError(f"pg_options is {options!r}; the switchml backend takes switchml.torch.Options")
        store, rank, size = backend_options.store, backend_options.group_rank, backend_options.group_size
        global_ranks = tuple(backend_options.global_ranks_in_group)  # none of the default group
        super().__init__(rank, size)
        self._options = options or current_options()
        # A separate store each time that this group is made: torch numbers groups from zero again after destroying
        # them.
        generation = store.add(f"switchml/made/{rank}", 1)
        self._store = dist.PrefixStore(f"switchml/{generation}/", store)
        self._gloo = make_gloo(self._store, rank, size, backend_options.timeout)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._pid = os.getpid()
        self._group = group = Group(
            name=str(backend_options.group_id),
            rank=rank,
            size=size,
            global_ranks=global_ranks or tuple(range(size)),
            is_default=not global_ranks,
            store=dist.PrefixStore("network/", self._store).clone(),
            timeout=backend_options.timeout,
            options=self._options,
            default_link=_link() if global_ranks else Link(),
        )
        self._queue: NetworkQueue | None = None
        if size > 1:
            self._queue = NetworkQueue(group)
            if group.is_default:  # other groups join with their first collective in the network
                global _default_queue
                _default_queue = weakref.ref(self._queue)
                self._queue.join()

    # ---- what the group is -----------------------------------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802 - the name by which C++ finds it
        """Return "switchml"."""
        return "switchml"

    def get_group_store(self) -> Any:
        """Return the group's store."""
        return self._store

    @property
    def options(self) -> Options:
        """The options of this group."""
        return self._options

    @property
    def state(self) -> str:
        """The path of its network collectives, which may change.

        "network", "gloo: REASON", "gloo-exact: REASON" (with the bits of the network), "failed: REASON" or "not joined
        yet".
        """
        return self._queue.route.state if self._queue is not None else "gloo: one rank has nothing to sum"

    @property
    def in_network(self) -> bool:
        """True while its network collectives go through the switch."""
        return self._queue is not None and isinstance(self._queue.route, InNetwork)

    @property
    def error(self) -> SwitchMLBackendError | None:
        """The error that its later network collectives will raise; None while it is usable."""
        return self._queue.route.error if self._queue is not None else None

    @property
    def job(self) -> str:
        """The name of its job in the switch; empty if it has none (yet)."""
        return self._queue.route.job if self._queue is not None else ""

    @property
    def link(self) -> Link:
        """Properties of the path to the switch that all ranks share; unknown if the group has no job (yet)."""
        return self._queue.route.link if self._queue is not None else Link()

    @property
    def round_trips(self) -> tuple[float, int]:
        """The seconds and bytes of `Communicator.statistics` of its job; 0 and 0 if it has none."""
        comm = self._queue.route.comm if self._queue is not None else None
        if comm is None:
            return 0.0, 0
        statistics = comm.statistics()
        return statistics.round_trip_seconds, statistics.round_trip_bytes

    def join(self) -> None:
        """Join the network now, if this group has not done so. All ranks must call this.

        Raises:
            SwitchMLBackendError: the group cannot be a job of the switch, and there is no fallback.

        """
        if self._queue is not None:
            self._queue.join()

    @property
    def timeout(self) -> timedelta:
        """The default timeout of collectives."""
        timeout: timedelta = self._gloo.options._timeout
        return timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the default timeout of collectives from now on; joining the network keeps the first one."""
        self._gloo.options._timeout = timeout

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Options | None = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[torch.device] | None = None,  # noqa: ARG002 - c10d's
    ) -> SwitchMLProcessGroup | None:
        """Make a group of some ranks of this one, for `torch.distributed.split_group`.

        Args:
            ranks: those of this group, by their rank in the new one.
            timeout: the default timeout of collectives; None for this group's.
            opts: the new group's options; None for this group's.
            group_name: torch's name for the new group, which no other one has.
            group_desc: a description, which is set on the group.
            device_types: devices whose part of this group is wanted; this group is the same for all of them.

        Returns:
            The new group, or None if this rank is not in it.

        """
        if self.rank() not in ranks:
            return None
        wanted = _DistributedBackendOptions()
        wanted.store = dist.PrefixStore(f"split/{group_name}/", self._store)
        wanted.group_rank, wanted.group_size = list(ranks).index(self.rank()), len(ranks)
        wanted.global_ranks_in_group = [self._group.global_ranks[rank] for rank in ranks]
        wanted.group_id = group_name or ""
        wanted.timeout = timeout or self.timeout
        group = SwitchMLProcessGroup(wanted, opts or self._options)
        group._set_group_name(wanted.group_id)
        group._set_group_desc(group_desc or "")
        return group

    def shutdown(self) -> None:
        """Leave the job; collectives in flight fail. No effect in a forked child."""
        if not self._is_own_process():
            return
        if self._queue is not None:
            self._queue.end()
        self._gloo.shutdown()

    def abort(self) -> None:
        """Leave the job at once; the other ranks are told that this rank is lost. No effect in a forked child."""
        if not self._is_own_process():
            return
        if self._queue is not None:
            self._queue.end("its process group was aborted")
        self._gloo.abort()

    def _is_own_process(self) -> bool:
        return os.getpid() == self._pid

    # ---- reductions ------------------------------------------------------------------------------------------------

    @on_plain_tensors
    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, op: Any = None) -> Any:
        """Reduce one tensor on all ranks; `tensors` is the tensor, or a list of only that tensor."""
        [tensor] = _one(tensors, "all_reduce")
        return self._all_reduce("all_reduce", [tensor], opts, op, timeout)

    @on_plain_tensors
    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        """Reduce several tensors on all ranks, submitted back to back; return one work for all."""
        return self._all_reduce("all_reduce_coalesced", list(tensors), opts, None, None)

    def _all_reduce(self, name: str, tensors: list[Tensor], opts: Any, op: Any, timeout: timedelta | None) -> Any:
        reduction, timeout = self._reduction(opts, op), self._timeout(opts, timeout)
        if all(self._path(name, tensor, reduction) == "network" for tensor in tensors):
            if any(tensor.is_sparse for tensor in tensors):
                return self._all_reduce_sparse(tensors, reduction, opts, timeout)
            return self._submit(AllReduce(tensors, reduction, self._conditions(timeout), name), opts)
        if any(tensor.is_sparse for tensor in tensors):
            for tensor in tensors:
                require_device(tensor, self._options)
            self._enter_gloo()
            works = [self._gloo.allreduce([tensor], _reduce_options(reduction, timeout)) for tensor in tensors]
            return works[0] if len(works) == 1 else completed_after(works, name, tensors)
        return self._reduce_over_gloo(name, tensors, reduction, lambda part: part.start(self._gloo, timeout))

    def _all_reduce_sparse(self, tensors: list[Tensor], reduction: Reduction, opts: Any, timeout: timedelta) -> Any:
        """Reduce tensors of which some are sparse, each in a separate call."""
        conditions = self._conditions(timeout)
        works = [
            self._submit(
                SparseAllReduce(tensor, reduction, conditions)
                if tensor.is_sparse
                else AllReduce([tensor], reduction, conditions),
                opts,
            )
            for tensor in tensors
        ]
        return works[0] if len(works) == 1 else completed_after(works, "all_reduce_coalesced", tensors)

    @on_plain_tensors
    def all_reduce_over(self, tensor: Tensor, op: str, wire: Wire, skip_zeros: SkipZeros = False) -> Any:
        """Reduce `tensor` with `op`, "sum" or "avg", over this wire instead of that of the group's options.

        It is a float32, or an integer tensor whose dtype holds the sums of all ranks. The arguments are those of
        `Communicator.all_reduce`. Over Gloo the dtype of the tensor is reduced.
        """
        reduction, timeout = reduction_of(op), self._timeout(None, None)
        if self._queue is None:
            return self._reduce_over_gloo(
                "all_reduce_over", [tensor], reduction, lambda part: part.start(self._gloo, timeout)
            )
        return self._submit(WireReduce(tensor, reduction, self._conditions(timeout), wire, skip_zeros), None)

    @on_plain_tensors
    def reduce_scatter_over(self, output: Tensor, input: Tensor, op: str, wire: Wire) -> Any:  # noqa: A002
        """Reduce `input`, as `all_reduce_over` does; rank r gets the r-th of its equal parts."""
        reduction, timeout = reduction_of(op), self._timeout(None, None)
        if self._queue is None:
            return self._scattered("reduce_scatter_over", output, [input], reduction, timeout, self._gloo_scatter)
        return self._submit(WireScatter(output, input, reduction, self._conditions(timeout), wire), None)

    @on_plain_tensors
    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None, root: int | None = None
    ) -> Any:
        """Reduce one tensor to the root (`opts.rootRank`); the tensors of the other ranks stay as they are."""
        [tensor] = _one(tensors, "reduce")
        root, opts = _root(opts, root)
        reduction, timeout = self._reduction(opts, op), self._timeout(opts, timeout)
        is_root = root == self.rank()
        if self._path("reduce", tensor, reduction) == "network":
            return self._submit(Reduce(tensor, reduction, is_root, self._conditions(timeout)), opts)

        def start(part: GlooReduction) -> Any:
            options = dist.ReduceOptions()
            options.reduceOp, options.rootRank, options.timeout = part.op, root, timeout
            if not is_root and part.buffer.data_ptr() == tensor.data_ptr():
                part.buffer = part.buffer.clone()  # Gloo leaves partial results there
            return self._gloo.reduce([part.buffer], options)

        return self._reduce_over_gloo("reduce", [tensor], reduction, start, is_root)

    def _reduce_over_gloo(
        self,
        name: str,
        tensors: list[Tensor],
        reduction: Reduction,
        start: Callable[[GlooReduction], Any],
        keeps: bool = True,
    ) -> Any:
        """Start Gloo's work on each tensor; unless this rank `keeps` the results, the tensors stay as they are."""
        operands = self._taken(tensors)
        parts = [GlooReduction(operand.target, reduction, self.size()) for operand in operands]
        self._enter_gloo()
        works = [start(part) for part in parts]

        def finish() -> list[Any]:
            if not keeps:
                return []
            for part in parts:
                part.finish()
            return _delivered(operands)

        return completed_after(works, name, tensors, finish, self._other_calls(f"{name} ({reduction.name})"))

    @on_plain_tensors
    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None, op: Any = None
    ) -> Any:
        """Reduce `inputs` (a list of one list, which has a tensor for each rank); each rank gets its own part."""
        name = "reduce_scatter"
        output, parts = _one(outputs, name)[0], _one_list(inputs, name)
        reduction, timeout = self._reduction(opts, op), self._timeout(opts, timeout)
        if (
            len(parts) == self.size()
            and all(_alike(part, output) for part in parts)
            and self._path(name, output, reduction) == "network"
        ):
            given = torch.cat([part.detach().flatten() for part in parts])
            return self._submit(ReduceScatter([output], [given], reduction, self._conditions(timeout), name), opts)
        return self._scattered(
            name,
            output,
            parts,
            reduction,
            timeout,
            lambda result, given, options: self._gloo.reduce_scatter([result], [given], options),
        )

    @on_plain_tensors
    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:  # noqa: A002 - c10d's
        """Reduce `input`; rank r gets the r-th of its equal parts."""
        name = "reduce_scatter_single"
        reduction, timeout = self._reduction(opts, None), self._timeout(opts, None)
        if self._scatters(name, [output], [input], reduction):
            return self._submit(ReduceScatter([output], [input], reduction, self._conditions(timeout), name), opts)
        return self._scattered(name, output, [input], reduction, timeout, self._gloo_scatter)

    @on_plain_tensors
    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Do `reduce_scatter_single` for several tensors; return one work for all."""
        name, reduction = "reduce_scatter_single_coalesced", self._reduction(opts, None)
        if len(outputs) == len(inputs) and self._scatters(name, outputs, inputs, reduction):
            conditions = self._conditions(self._timeout(opts, None))
            return self._submit(ReduceScatter(outputs, inputs, reduction, conditions, name), opts)
        works = [self.reduce_scatter_single(output, given, opts) for output, given in zip(outputs, inputs, strict=True)]
        return completed_after(works, name, outputs)

    def _scatters(self, name: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor], reduction: Reduction) -> bool:
        """Return whether the network reduces and scatters the tensors; errors in their sizes are found by Gloo."""
        return all(
            given.dtype == output.dtype
            and given.numel() == self.size() * output.numel()
            and self._path(name, given, reduction) == "network"
            for output, given in zip(outputs, inputs, strict=True)
        )

    def _gloo_scatter(self, result: Tensor, given: list[Tensor], options: Any) -> Any:
        return self._gloo._reduce_scatter_base(result, given[0], options)

    def _scattered(
        self,
        name: str,
        output: Tensor,
        inputs: list[Tensor],
        reduction: Reduction,
        timeout: timedelta,
        call: Callable[[Tensor, list[Tensor], Any], Any],
    ) -> Any:
        """Reduce `inputs` over Gloo by a `call` that takes the result, the inputs and options."""
        options = dist.ReduceScatterOptions()
        parts = [
            GlooReduction(operand.target, reduction, self.size()) for operand in self._taken(inputs, written=False)
        ]
        options.reduceOp, options.timeout = parts[0].op, timeout
        [taken] = self._taken([output])
        result = taken.target if parts[0].is_result(taken.target) else parts[0].empty_result(taken.target.shape)
        self._enter_gloo()
        work = call(result, [part.buffer for part in parts], options)

        def finish() -> list[Any]:
            parts[0].finish(result, taken.target)
            return _delivered([taken])

        return completed_after([work], name, [output], finish, self._other_calls(f"{name} ({reduction.name})"))

    # ---- broadcast and barrier -------------------------------------------------------------------------------------

    @on_plain_tensors
    def broadcast(
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, root: int | None = None
    ) -> Any:
        """Copy one tensor of the root (`opts.rootRank`) to all ranks."""
        [tensor] = _one(tensors, "broadcast")
        root, opts = _root(opts, root)
        timeout = self._timeout(opts, timeout)
        if self._path("broadcast", tensor) == "network":
            return self._submit(Broadcast(tensor, root, self._conditions(timeout)), opts)
        options = dist.BroadcastOptions()
        options.rootRank, options.timeout = root, timeout
        return self._over_gloo("broadcast", [tensor], [], lambda out, _: self._gloo.broadcast(out, options))

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Wait until all ranks have called this, and their earlier network collectives have ended."""
        timeout = self._timeout(opts, timeout)
        if self._queue is not None:
            return self._submit(Barrier(self._conditions(timeout)), opts)
        self._enter_gloo()
        options = dist.BarrierOptions()
        options.timeout = timeout
        return self._gloo.barrier(options)

    # ---- all-gather ------------------------------------------------------------------------------------------------

    @on_plain_tensors
    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Gather a tensor of each rank on all ranks."""
        outputs, inputs = ([outputs], [inputs]) if isinstance(inputs, Tensor) else (outputs, inputs)
        if self._gathers_lists("all_gather", outputs, inputs):
            return self._all_gather("all_gather", outputs, inputs, opts, timeout)
        options = self._with_timeout(AllgatherOptions(), opts, timeout)
        return self._over_gloo(
            "all_gather", outputs, inputs, lambda out, given: self._gloo.allgather(out, given, options)
        )

    @on_plain_tensors
    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Do `allgather` for several tensors; `outputs` has a list of such tensors for each rank."""
        by_tensor = [list(of_ranks) for of_ranks in zip(*outputs, strict=False)]
        name = "all_gather_coalesced"
        if self._gathers_lists(name, by_tensor, inputs):
            return self._all_gather(name, by_tensor, inputs, opts, None)
        options = self._with_timeout(AllgatherOptions(), opts, None)
        return self._over_gloo(
            name, outputs, inputs, lambda out, given: self._gloo.allgather_coalesced(out, given, options)
        )

    @on_plain_tensors
    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:  # noqa: A002 - c10d's
        """Gather a tensor of each rank into consecutive parts of `output`."""
        name = "all_gather_single"
        if self._gathers(name, [output], [input]):
            return self._all_gather(name, [output], [input], opts, None)
        options = self._with_timeout(AllgatherOptions(), opts, None)
        return self._over_gloo(
            name, [output], [input], lambda out, given: self._gloo._allgather_base(out[0], given[0], options)
        )

    @on_plain_tensors
    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Do `all_gather_single` for several tensors; return one work for all."""
        name = "all_gather_single_coalesced"
        if len(outputs) == len(inputs) and self._gathers(name, outputs, inputs):
            return self._all_gather(name, outputs, inputs, opts, None)
        works = [self.all_gather_single(output, given, opts) for output, given in zip(outputs, inputs, strict=True)]
        return completed_after(works, name, outputs)

    def _gathers(self, name: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> bool:
        """Return whether the network gathers the tensors; errors in their sizes are found by Gloo."""
        return all(
            given.dtype == output.dtype
            and given.numel() * self.size() == output.numel()
            and not given.is_sparse
            and self._path(name, output) == "network"
            for output, given in zip(outputs, inputs, strict=True)
        )

    def _gathers_lists(self, name: str, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor]) -> bool:
        """Like `_gathers`, for one output tensor per rank; Gloo gathers to other devices."""
        return len(outputs) == len(inputs) and all(
            len(of_ranks) == self.size()
            and all(_alike(output, given) and output.device.type == "cpu" for output in of_ranks)
            and self._path(name, given, copies=self.size()) == "network"
            for of_ranks, given in zip(outputs, inputs, strict=True)
        )

    def _all_gather(
        self,
        name: str,
        outputs: Sequence[Tensor | Sequence[Tensor]],
        inputs: Sequence[Tensor],
        opts: Any,
        timeout: timedelta | None,
    ) -> Any:
        conditions = self._conditions(self._timeout(opts, timeout))
        for output in _flat(outputs):
            require_device(output, self._options)
            require_writable(output)
        return self._submit(AllGather(outputs, inputs, conditions, name), opts)

    # ---- operations over Gloo --------------------------------------------------------------------------------------

    @on_plain_tensors
    def gather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None, root: int | None = None
    ) -> Any:
        """Gather a tensor of each rank on the root."""
        root, opts = _root(opts, root)
        outputs, inputs = ([outputs] if outputs else [], [inputs]) if isinstance(inputs, Tensor) else (outputs, inputs)
        options = self._with_timeout(dist.GatherOptions(), opts, timeout)
        options.rootRank = root
        return self._over_gloo("gather", outputs, inputs, lambda out, given: self._gloo.gather(out, given, options))

    @on_plain_tensors
    def scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None, root: int | None = None
    ) -> Any:
        """Give each rank a tensor of the root's list."""
        root, opts = _root(opts, root)
        outputs, inputs = ([outputs], [inputs] if inputs else []) if isinstance(outputs, Tensor) else (outputs, inputs)
        options = self._with_timeout(dist.ScatterOptions(), opts, timeout)
        options.rootRank = root
        return self._over_gloo("scatter", outputs, inputs, lambda out, given: self._gloo.scatter(out, given, options))

    @on_plain_tensors
    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Send a tensor to each rank, and receive one from each."""
        options = self._with_timeout(dist.AllToAllOptions(), opts, timeout)
        if len(outputs) != self.size() or len(inputs) != self.size():
            raise ValueError(f"all_to_all takes lists of {self.size()} tensors, not {len(outputs)} and {len(inputs)}")

        def call(out: list[Tensor], given: list[Tensor]) -> Any:
            # Gloo only supports all_to_all for one tensor with parts.
            flat_in = torch.cat([tensor.flatten() for tensor in given])
            flat_out = torch.empty(sum(tensor.numel() for tensor in out), dtype=out[0].dtype)
            sizes_out, sizes_in = [tensor.numel() for tensor in out], [tensor.numel() for tensor in given]
            work = self._gloo.alltoall_base(flat_out, flat_in, sizes_out, sizes_in, options)

            def finish() -> list[Any]:
                for tensor, part in zip(out, flat_out.split(sizes_out), strict=True):
                    tensor.copy_(part.view(tensor.shape))
                return []

            return completed_after([work], "all_to_all", out, finish)

        return self._over_gloo("all_to_all", outputs, inputs, call)

    @on_plain_tensors
    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,  # noqa: A002 - c10d's
        output_splits: list[int],
        input_splits: list[int],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Any:
        """Send a part of `input` to each rank, and receive one from each."""
        options = self._with_timeout(dist.AllToAllOptions(), opts, timeout)
        return self._over_gloo(
            "all_to_all_single",
            [output],
            [input],
            lambda out, given: self._gloo.alltoall_base(out[0], given[0], output_splits, input_splits, options),
        )

    @on_plain_tensors
    def send(self, tensors: Sequence[Tensor], destination: int, tag: int) -> Any:
        """Send a tensor to one rank."""
        return self._over_gloo("send", [], tensors, lambda _, given: self._gloo.send(given, destination, tag))

    @on_plain_tensors
    def recv(self, tensors: Sequence[Tensor], source: int, tag: int) -> Any:
        """Receive a tensor from one rank."""
        return self._over_gloo("recv", tensors, [], lambda out, _: self._gloo.recv(out, source, tag))

    @on_plain_tensors
    def recv_anysource(self, tensors: Sequence[Tensor], tag: int) -> Any:
        """Receive a tensor from any rank; the work's `_source_rank` returns which one."""
        return self._over_gloo("recv_anysource", tensors, [], lambda out, _: self._gloo.recv_anysource(out, tag))

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait until all ranks have called this; rank 0 raises an error that names those that have not."""
        self._enter_gloo()
        # Here a timeout of zero is meaningful: it asks whether all ranks have come already.
        self._gloo.monitored_barrier(self._timeout(None, None) if timeout is None else timeout, wait_all_ranks)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _over_gloo(self, name: str, outputs: Any, inputs: Any, call: Callable[[Any, Any], Any]) -> Any:
        """Call Gloo to move data, with dense tensors in CPU memory of dtypes that it supports.

        Args:
            name: the name of the operation.
            outputs: tensors or nested lists of them, to which Gloo writes.
            inputs: likewise, from which Gloo reads.
            call: takes the tensors that stand for these, and returns Gloo's work.

        """
        tensors = _flat(outputs)
        results, given = self._taken(tensors), self._taken(_flat(inputs), written=False)
        handed, read = ([_as_moved(operand.target) for operand in taken] for taken in (results, given))
        self._enter_gloo()
        work = call(_nested(outputs, iter(handed)), _nested(inputs, iter(read)))
        as_they_are = all(result.in_place for result in results) and [part.dtype for part in handed] == [
            tensor.dtype for tensor in tensors
        ]
        if as_they_are and recording.recorder is None:  # a work of C++ cannot be recorded
            return work
        return completed_after([work], name, tensors, lambda: _delivered(results), self._other_calls(name))

    def _other_calls(self, call: str) -> Callable[[], str]:
        """Return a function that returns a sentence if other ranks are out of time in other calls than this one."""
        group = self._group
        return partial(other_calls, group.store, group.rank, group.size, f"{call} over Gloo")

    def _taken(self, tensors: Sequence[Tensor], written: bool = True) -> list[Operand]:
        """Return operands that hold the elements of the caller's tensors."""
        operands = [Operand(tensor, False, self._options, written) for tensor in tensors]
        for operand in operands:
            operand.ready()
        return operands

    def _enter_gloo(self) -> None:
        """Count a call of Gloo; raise in a forked child, which would wait for Gloo's threads forever."""
        if not self._is_own_process():
            raise forked_error(str(self._group), self._pid)
        count("gloo_calls")

    # ---- arguments -------------------------------------------------------------------------------------------------

    def _submit(self, collective: Collective, opts: Any) -> Any:
        assert self._queue is not None
        self._queue.submit(collective, getattr(opts, "asyncOp", True) is False)
        return collective.work

    def _path(self, name: str, tensor: Tensor, reduction: Reduction | None = None, copies: int = 1) -> Path:
        """Return the path of a collective whose result is as large as `copies` tensors of this size."""
        if self._queue is None:
            return "gloo"
        dtype = torch.empty(0, dtype=tensor.dtype).real.dtype if tensor.is_complex() else tensor.dtype
        size = copies * tensor.nbytes if not tensor.is_sparse else None
        path = path_of(name, dtype, reduction, size, tensor.is_sparse, link=_link())
        if tensor.is_complex() and reduction is not None and path == "gloo":
            raise UnsupportedTensor(
                f"{reduction.name} is not defined for {tensor.dtype}. The tensor is unchanged; reduce its real and "
                "imaginary parts (torch.view_as_real) or its magnitude."
            )
        return path

    def _reduction(self, opts: Any, op: Any) -> Reduction:
        if op is None:
            op = getattr(opts, "reduceOp", opts)
        return reduction_of(dist.ReduceOp.SUM if op is None else op)

    def _timeout(self, opts: Any, timeout: timedelta | None) -> timedelta:
        given = timeout if timeout is not None else getattr(opts, "timeout", None)
        return given if given is not None and given > _UNSET else self.timeout

    def _conditions(self, timeout: timedelta) -> Conditions:
        """Return what this group sets for a collective over its network."""
        return Conditions(self.rank(), self.size(), self._options.fallback is not None, self._options, timeout)

    def _with_timeout(self, options: Any, opts: Any, timeout: timedelta | None) -> Any:
        options.timeout = self._timeout(opts, timeout)
        return options


_default_queue: weakref.ref[NetworkQueue] | None = None  # of the latest default group


def _link() -> Link:
    """Return what all ranks of the default group have in common on their ways to the switch.

    It stands for all groups: a group that has not joined yet cannot say so itself, and all ranks must choose alike.
    """
    queue = None if _default_queue is None else _default_queue()
    return Link() if queue is None else queue.route.link


def _alike(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors can be parts of one."""
    return one.dtype == other.dtype and one.numel() == other.numel() and bool(one.device == other.device)


def _one(tensors: Any, name: str) -> list[Tensor]:
    """Return a list of exactly one tensor, from that tensor or from a list of it."""
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if len(given) != 1:
        raise ValueError(
            f"{name} takes one tensor (a list of it), not {len(given)}; use the coalesced form for several"
        )
    return given


def _one_list(tensors: Any, name: str) -> list[Tensor]:
    given = list(tensors)
    if given and isinstance(given[0], Tensor):
        return given
    if len(given) != 1:
        raise ValueError(f"{name} takes one list of tensors, not {len(given)}")
    return list(given[0])


def _root(opts: Any, root: int | None) -> tuple[int, Any]:
    """Return the root and the options; `opts` may be the root itself."""
    if root is None and isinstance(opts, int):
        return opts, None
    return (opts.rootRank if root is None else root), opts


def _reduce_options(reduction: Reduction, timeout: timedelta) -> Any:
    options = dist.AllreduceOptions()
    options.reduceOp = getattr(dist.ReduceOp, reduction.name.upper())
    options.timeout = timeout
    return options


def _flat(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else [tensor for part in tensors for tensor in _flat(part)]


def _delivered(operands: Sequence[Operand]) -> list[Any]:
    """Write results to the caller's tensors, and return the CUDA events of the copies that are under way."""
    for operand in operands:
        operand.deliver()
    return [operand.delivered for operand in operands if operand.delivered is not None]


def _as_moved(tensor: Tensor) -> Tensor:
    return tensor.view(_MOVED_AS.get(tensor.dtype, tensor.dtype))


def _nested(form: Any, tensors: Iterator[Tensor]) -> Any:
    """Return the next `tensors` in nested lists like those of `form`."""
    return next(tensors) if isinstance(form, Tensor) else [_nested(part, tensors) for part in form]
