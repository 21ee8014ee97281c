"""Runs schedules of `switchml-ctl synthesize` over a process group of any backend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
import torch.distributed as dist

from switchml.common.schedules import Schedule, Send, load

__all__ = ["ScheduledCollective", "load"]


class ScheduledCollective:
    """A collective that sends what a schedule says, in rounds in which each link carries at most one message.

    Calls are made by all ranks of the group, in the same order.

    Args:
        schedule: the schedule, from `load`.
        group: the group whose ranks are those of the schedule; None for the default group.
        switch_group: if the schedule sums chunks in an aggregation switch, a group of the ranks attached to it, whose
            all-reduce does so, such as one of the backend "switchml". Ranks that are not attached need none.

    Raises:
        ValueError: a group does not have the ranks of the schedule.
    """

    def __init__(
        self,
        schedule: Schedule,
        group: dist.ProcessGroup | None = None,
        switch_group: dist.ProcessGroup | None = None,
    ) -> None:
        self._schedule = schedule
        self._group = group if group is not None else dist.group.WORLD
        self._switch_group = switch_group
        self._rank, size = dist.get_rank(self._group), dist.get_world_size(self._group)
        if size != schedule.ranks:
            raise ValueError(f"the schedule is for {schedule.ranks} ranks, the group has {size}; synthesize one for it")
        self._peers = dist.get_process_group_ranks(self._group)
        self._rounds = [
            [send for send in sends if self._rank in (*send.sources, *send.destinations)] for sends in _rounds(schedule)
        ]
        for send in (send for sends in self._rounds for send in sends if len(send.sources) > 1):
            attached = {self._peers[rank] for rank in send.sources}
            if switch_group is None or set(dist.get_process_group_ranks(switch_group)) != attached:
                raise ValueError(
                    f"the schedule sums chunks in a switch; switch_group must have the global ranks {sorted(attached)}"
                )

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:  # noqa: A002 (as torch names it)
        """Run the collective, as torch's of tensors do.

        Args:
            output: for an all-gather, as many times the elements of the input as there are ranks; for a reduce-scatter,
                the part of this rank; else, as large as the input. In an all-reduce it may be the input itself.
            input: the values of this rank.

        Raises:
            ValueError: the tensors have the wrong sizes, differ in type, or are not contiguous.
        """
        chunks = self._chunks(output, input)
        for sends in self._rounds:
            self._run_round(sends, chunks)
        if self._schedule.collective == "reduce-scatter":
            parts = self._schedule.chunks_per_rank
            own = range(self._rank * parts, (self._rank + 1) * parts)
            torch.cat([chunks[chunk] for chunk in own], out=output.view(-1))

    def _chunks(self, output: torch.Tensor, given: torch.Tensor) -> dict[int, torch.Tensor]:
        """Return by number the chunks that this rank ever has, as views of the output where they must end there."""
        schedule, rank = self._schedule, self._rank
        ranks, parts, collective = schedule.ranks, schedule.chunks_per_rank, schedule.collective
        small, large = (given, output) if collective == "all-gather" else (output, given)
        factor = ranks if collective in ("all-gather", "reduce-scatter") else 1
        if large.numel() != factor * small.numel() or (collective == "all-to-all" and large.numel() % ranks):
            raise ValueError(
                f"an output of {output.numel()} and an input of {given.numel()} elements do not fit the {collective} "
                f"of {ranks} ranks"
            )
        if output.dtype != given.dtype or not output.is_contiguous() or not given.is_contiguous():
            raise ValueError("output and input must have the same type, and be contiguous")
        if collective == "all-gather":
            blocks = output.view(-1).tensor_split(ranks)
            blocks[rank].copy_(given.view(-1))
            return _numbered(blocks, parts)
        if collective == "reduce-scatter":
            return _numbered(given.clone().view(-1).tensor_split(ranks), parts)
        if collective == "all-reduce":
            if output is not given:
                output.copy_(given.view_as(output))
            return dict(enumerate(output.view(-1).tensor_split(ranks * parts)))
        return self._exchanged(output, given)

    def _exchanged(self, output: torch.Tensor, given: torch.Tensor) -> dict[int, torch.Tensor]:
        """Return the chunks of an all-to-all: this rank's input, its output, and memory for those that it passes on."""
        ranks, parts, rank = self._schedule.ranks, self._schedule.chunks_per_rank, self._rank
        received, sent = (tensor.view(-1).tensor_split(ranks) for tensor in (output, given))
        received[rank].copy_(sent[rank])
        chunks = {}
        sizes = [part.numel() for part in sent[rank].tensor_split(parts)]
        passing = {chunk for sends in self._rounds for send in sends for chunk in send.chunks}
        for chunk in passing:
            chunks[chunk] = given.new_empty(sizes[chunk % parts])
        for peer in range(ranks):
            for part, (mine, theirs) in enumerate(
                zip(sent[peer].tensor_split(parts), received[peer].tensor_split(parts), strict=True)
            ):
                chunks[(rank * ranks + peer) * parts + part] = mine
                chunks[(peer * ranks + rank) * parts + part] = theirs
        return chunks

    def _run_round(self, sends: Sequence[Send], chunks: dict[int, torch.Tensor]) -> None:
        operations, works, arrivals = [], [], []
        for send in sends:
            mine = [chunks[chunk] for chunk in send.chunks]
            if not sum(chunk.numel() for chunk in mine):
                continue
            message = mine[0] if len(mine) == 1 else torch.cat(mine)
            if len(send.sources) > 1:
                works.append(dist.all_reduce(message, group=self._switch_group, async_op=True))
                arrivals.append((send, message))
            elif self._rank in send.sources:
                operations.append(dist.P2POp(dist.isend, message, self._peers[send.destinations[0]], self._group))
            else:
                message = torch.empty_like(message) if send.reduces else message
                operations.append(dist.P2POp(dist.irecv, message, self._peers[send.sources[0]], self._group))
                arrivals.append((send, message))
        works += dist.batch_isend_irecv(operations) if operations else []
        for work in works:
            work.wait()
        for send, message in arrivals:
            mine = [chunks[chunk] for chunk in send.chunks]
            for chunk, part in zip(mine, message.split([chunk.numel() for chunk in mine]), strict=True):
                if send.reduces:
                    chunk += part
                elif message is not mine[0]:
                    chunk.copy_(part)


def _numbered(blocks: Sequence[torch.Tensor], parts: int) -> dict[int, torch.Tensor]:
    return dict(enumerate(part for block in blocks for part in block.tensor_split(parts)))


def _rounds(schedule: Schedule) -> list[list[Send]]:
    """Return the sends in rounds: each after those that bring what it sends, and after those before it on its link."""
    written: dict[tuple[int, int], int] = defaultdict(int)  # by rank and chunk: the rounds after which it is there
    read: dict[tuple[int, int], int] = defaultdict(int)  # the rounds after which it may be overwritten
    link: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = defaultdict(int)  # those after which it is free
    rounds: list[list[Send]] = []
    for send in sorted(schedule.sends, key=lambda send: (send.start, send.end)):
        sources = [(rank, chunk) for rank in send.sources for chunk in send.chunks]
        targets = [(rank, chunk) for rank in send.destinations for chunk in send.chunks]
        number = max(
            link[send.sources, send.destinations],
            *(written[place] for place in sources),
            *(read[place] for place in targets),
        )
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(send)
        link[send.sources, send.destinations] = number + 1
        for place in sources:
            read[place] = max(read[place], number + 1)
        for place in targets:
            written[place] = max(written[place], number + 1)
    return rounds
