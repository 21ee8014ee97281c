"""The plan of each step: which segments are sent, in which order."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch.distributed as dist

from switchml.client.schedules import Policy, Segment, plan
from switchml.torch.scheduling.buckets import GRAIN
from switchml.torch.scheduling.trace import Trace
from switchml.torch.scheduling.tune import Tuner

__all__ = ["Planner"]


class Planner:
    """Plans the steps of a training by its policy, on all ranks alike: what only one rank can know, rank 0 tells.

    Args:
        policy: the policy; its partition and credit change if there is a tuner.
        sizes: bytes of each bucket.
        tuner: searches the partition and the credit, on rank 0; None to keep those of the policy.
        group: the ranks.

    Attributes:
        policy: the policy of the next step.
        plan: the segments of each class of the current step, the most urgent class first.
        trace: the record of the first step; None after it.

    Raises:
        ModuleNotFoundError: there is a tuner, and Optuna is not installed.

    """

    def __init__(self, policy: Policy, sizes: Sequence[int], tuner: Tuner | None, group: dist.ProcessGroup) -> None:
        self.policy = policy
        self.plan: list[list[Segment]] = []
        self.trace: Trace | None = Trace()
        self._sizes = list(sizes)
        forwards = list(range(len(sizes)))
        self._order = forwards[::-1], forwards  # of completion, and of urgency
        self._tuner = tuner
        self._group = group
        self._leads = group.rank() == 0
        self._step_began: float | None = None
        if tuner is not None and self._leads:
            tuner.start()

    @property
    def tunes(self) -> bool:
        """True if rank 0 may change the partition and the credit at each step."""
        return self._tuner is not None

    def next_plan(self) -> list[list[Segment]]:
        """Make the plan of the next step, and return it."""
        completion, urgency = self._order
        self.plan = plan(self.policy, self._sizes, completion, urgency, GRAIN)
        return self.plan

    def begin_step(self) -> None:
        """Tell the tuner how long the last step took."""
        now = time.perf_counter()
        if self._tuner is not None and self._leads and self._step_began is not None:
            self._tuner.took(now - self._step_began)
        self._step_began = now

    def point(self) -> tuple[int, int]:
        """Return the partition and the credit with which rank 0 wants to go on; zeros on other ranks."""
        return (self._tuner and self._tuner.point) or (0, 0)

    def adopt(self, partition: int, credit: int) -> None:
        """Go on with the partition and the credit that rank 0 has told."""
        self.policy = replace(self.policy, partition=partition, credit=credit)

    def learn(self, trace: Trace, buckets_of: Mapping[str, Sequence[int]]) -> None:
        """Plan the next steps as rank 0 has seen the first one; `buckets_of` a module are those that it waits for."""
        urgency = trace.urgency(self.policy.order, buckets_of, self._sizes)
        said = [(trace.completion(len(self._sizes)), urgency)]
        dist.broadcast_object_list(said, group=self._group, group_src=0)
        [self._order] = said
