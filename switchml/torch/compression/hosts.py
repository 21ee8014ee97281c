"""Compression of the gradients of DistributedDataParallel on hosts with several ranks, of which one sends for all.

mesh = init_device_mesh(
    "cpu", (2, 4), mesh_dim_names=("hosts", "inside"),
    backend_override={"hosts": "switchml", "inside": "gloo"},
)
state = HostCompressionState(
    model, by_name("topk"), group=mesh["hosts"].get_group(), inside=mesh["inside"].get_group()
)
model.register_comm_hook(state, compression_hook)
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Mapping
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Final, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future

from switchml.torch.compression.compressor import Compressor, Outcome, Place, Rounds, next_of
from switchml.torch.compression.exchange import Exchange, end_threads
from switchml.torch.compression.gathers import of_selected
from switchml.torch.compression.hook import CompressionState, rounds_of_bucket
from switchml.torch.compression.memory import Memory
from switchml.torch.compression.requests import Gather, Request, Sparse

__all__ = ["HostCompressionState", "Order"]

Order = Literal["intra-compress-inter", "compress-intra-inter"]
"""The order of the sum inside a host and of the compression."""

_LEADER: Final = 0  # the rank of a host that sends for it


class _SumsOfBlocks(Compressor):
    """The averages of what hosts have summed of compressed gradients, without blocks of zeros."""

    name = "sums of blocks"
    sent = "32 for each element of a block that is not zero"
    requests = (Sparse,)

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Average the gradient."""
        return Outcome((yield Sparse(gradient)), gradient)


class _SumsOfSelected(Compressor):
    """The averages of what hosts have summed of selected elements."""

    name = "sums of selected elements"
    sent = "64 for each that is not zero"
    requests = (Gather, Gather)

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Gather the sizes, then values and places."""
        return (yield from of_selected(gradient, gradient != 0))


class HostCompressionState(CompressionState):
    """The state of `compression_hook` for one model on hosts with several ranks, of which the first sends for all.

    - `intra-compress-inter`: a host averages its gradients, and its first rank compresses the average and exchanges it
      with the other hosts. The residuals are those of this rank.
    - `compress-intra-inter`: every rank compresses its gradient, as it would alone, and keeps the residual. The host
      averages what the compressed gradients stand for, and its first rank exchanges the average: its elements that are
      not zero, if the method selects elements, and otherwise its blocks. More is sent, because ranks select different
      elements, and sums of integers are no longer small ones.

    Inside a host nothing is compressed; `inside` may be of any back end. The arguments, errors, checkpoints and scale
    are those of `CompressionState`; a checkpoint can only be loaded with as many hosts and ranks.

    Args:
        group: the ranks at the same place of each host.
        inside: the ranks of this host.
        order: see above.

    Raises:
        ValueError: the order is unknown, or the method does not know what its contribution stands for, which it must
            if it comes before the sum.

    """

    def __init__(
        self,
        model: nn.Module,
        compressor: Compressor,
        *,
        group: dist.ProcessGroup,
        inside: dist.ProcessGroup,
        order: Order = "intra-compress-inter",
        timeout: float = 300.0,
        **arguments: Any,
    ) -> None:
        if order not in get_args(Order):
            raise ValueError(f"order is {order!r}; it must be one of {', '.join(get_args(Order))}")
        self._compresses_first = order == "compress-intra-inter"
        if self._compresses_first and not compressor.knows_own:
            raise ValueError(
                f"{compressor.name} does not know what a contribution stands for; use order='intra-compress-inter', or "
                "another method"
            )
        super().__init__(model, compressor, group=group, timeout=timeout, **arguments)
        self.order = order
        self._local = int(inside.rank()), int(inside.size())
        ranks, backend = dist.get_process_group_ranks(inside), dist.get_backend(inside)
        # Sums and results are under way at the same time, each in one order on all ranks.
        self._sums, self._results = (
            dist.new_group(ranks, timedelta(seconds=timeout), backend, use_local_synchronization=True) for _ in range(2)
        )
        self._given: SimpleQueue[_Bucket | None] = SimpleQueue()
        self._summed: SimpleQueue[_Bucket | None] = SimpleQueue()
        self._threads_started = False

    def _exchange_of(self, compressor: Compressor, group: dist.ProcessGroup | None, timeout: float) -> Exchange:
        if not self._compresses_first:
            return Exchange(compressor, group, timeout)
        return Exchange(_SumsOfSelected() if compressor.selects else _SumsOfBlocks(), group, timeout)

    @property
    def _rank(self) -> int:
        return self._exchange.rank * self._local[1] + self._local[0]

    @property
    def _world_size(self) -> int:
        return self._exchange.size * self._local[1]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of this rank.

        Raises:
            ValueError: the state is of another compressor, memory or model, or of another number of ranks.

        """
        if int(state["world_size"]) != self._world_size:
            raise ValueError(
                f"the checkpoint is of {state['world_size']} ranks, and this training has {self._world_size}; the "
                "residuals of hosts belong to their ranks"
            )
        super().load_state_dict(state)

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {"order": self.order}

    # ---- one bucket ------------------------------------------------------------------------------------------------

    def _average(self, buffer: Tensor, pieces: Mapping[str, Tensor]) -> Future[Tensor]:
        if not self._threads_started:
            self._threads_started = True
            arguments = weakref.proxy(self), self._given, self._summed
            threads = [
                threading.Thread(target=run, args=arguments, name=run.__name__, daemon=True)
                for run in (_run_sums, _run_results)
            ]
            for thread in threads:
                thread.start()
            weakref.finalize(self, end_threads, self._given, threads)
        bucket = _Bucket(buffer, pieces, *self._method_of_step(), self.step)
        self._given.put(bucket)
        return bucket.future.then(lambda future: future.value())

    def sum_inside(self, bucket: _Bucket) -> None:
        """Average a bucket over this host; let its first rank exchange the average (thread)."""
        if self._compresses_first:
            self._compress(bucket)
        total = bucket.buffer.float()
        dist.all_reduce(total, group=self._sums)
        bucket.buffer.copy_(total.div_(self._local[1]))
        if self._local[0] != _LEADER:
            return
        if self._compresses_first:
            place = Place("", bucket.step, self._exchange.rank, self._exchange.size)
            bucket.exchanged = self._exchange.submit(_exchanged(bucket.buffer, self._exchange.compressor, place))
        else:
            bucket.exchanged = super()._average(bucket.buffer, bucket.pieces)

    def give_results(self, bucket: _Bucket) -> None:
        """Give the average over all hosts to the ranks of this one (thread)."""
        if bucket.exchanged is not None:
            bucket.exchanged.wait()
        dist.broadcast(bucket.buffer, group_src=_LEADER, group=self._results)
        if not self._compresses_first:
            return
        bad = not bool(bucket.buffer.isfinite().all())
        if bad:
            bucket.buffer.fill_(math.nan)
        for name, own in bucket.own.items():
            if bad:
                bucket.memory.drop(name)
            else:
                bucket.memory.end(name, own)

    def _compress(self, bucket: _Bucket) -> None:
        """Replace a gradient by that which its compressed form stands for."""
        if not bool(bucket.buffer.isfinite().all()):
            bucket.buffer.fill_(math.nan)  # on all ranks, at the end
            return
        filled = sorted((name, piece) for name, piece in bucket.pieces.items() if piece.numel())
        given = [bucket.memory.begin(name, piece.float()) for name, piece in filled]
        places = [_AloneIn(name, bucket.step, self._rank, 1, self._seed) for name, _ in filled]
        outcomes = _alone(rounds_of_bucket(bucket.compressor, given, places))
        for (name, piece), outcome in zip(filled, outcomes, strict=True):
            assert outcome.own is not None
            bucket.own[name] = outcome.own
            piece.copy_(outcome.own)


class _AloneIn(Place):
    """The place of a gradient that a rank compresses alone: it decides for itself."""

    @property
    def leader(self) -> int:
        """The rank itself."""
        return self.rank


class _Bucket:
    """A bucket of gradients on its way: summed inside the host, exchanged by one rank, given to the others."""

    def __init__(
        self, buffer: Tensor, pieces: Mapping[str, Tensor], compressor: Compressor, memory: Memory, step: int
    ) -> None:
        self.buffer = buffer
        self.pieces = pieces
        self.compressor = compressor
        self.memory = memory
        self.step = step
        self.own: dict[str, Tensor] = {}  # what was sent of each piece, if it was compressed here
        self.exchanged: Future[Any] | None = None
        self.future: Future[Tensor] = Future()
        self.error: Exception | None = None


def _alone(rounds: Any) -> Any:
    """Return the outcome of rounds that one rank makes without others: each request is answered by its own values."""
    answer = None
    while isinstance(request := next_of(rounds, answer), Request):
        values = request.values.unsqueeze(0) if isinstance(request, Gather) else request.values
        answer = request.answer(values)
    return request


def _exchanged(buffer: Tensor, compressor: Compressor, place: Place) -> Any:
    outcome = yield from compressor.rounds(buffer.float(), place)
    buffer.copy_(outcome.average)


def _run_sums(state: Any, given: SimpleQueue[_Bucket | None], summed: SimpleQueue[_Bucket | None]) -> None:
    with torch.no_grad():
        while (bucket := given.get()) is not None:
            try:
                state.sum_inside(bucket)
            except Exception as error:
                bucket.error = error
            summed.put(bucket)
        summed.put(None)


def _run_results(state: Any, _: SimpleQueue[_Bucket | None], summed: SimpleQueue[_Bucket | None]) -> None:
    with torch.no_grad():
        while (bucket := summed.get()) is not None:
            try:
                if bucket.error is not None:
                    raise bucket.error
                state.give_results(bucket)
            except Exception as error:  # noqa: PERF203 - of one bucket
                bucket.future.set_exception(error)
            else:
                bucket.future.set_result(bucket.buffer)
