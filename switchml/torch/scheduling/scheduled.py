"""The optimizer of cross-barrier training."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable

from switchml.client.arguments import positive_seconds, whole_number
from switchml.client.schedules import Policy, Segment, policy_of
from switchml.torch.device_backend import switchml_group
from switchml.torch.scheduling.buckets import Buckets, Travelling
from switchml.torch.scheduling.checks import check_model, check_optimizer, check_policy, check_same
from switchml.torch.scheduling.planner import Planner
from switchml.torch.scheduling.streams import Round, Streams
from switchml.torch.scheduling.trace import Trace
from switchml.torch.scheduling.tune import Tuner

__all__ = ["ScheduledOptimizer"]

_LOG = logging.getLogger(__name__)


@dataclass
class _Step:
    """The state of the current step on this rank."""

    travelling: set[Tensor] = field(default_factory=set)  # parameters whose gradients were taken to be sent
    kept: set[Tensor] = field(default_factory=set)  # those with gradients of passes under `no_sync`
    averaged: bool = False  # the averages are in the gradients
    in_backward: bool = False
    sends: bool = True  # False under `no_sync`


class ScheduledOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    """Averages gradients over the ranks in the order of a policy, and steps the parameters when they are needed.

        optimizer = ScheduledOptimizer(torch.optim.AdamW(model.parameters()), model, policy="bytescheduler")
        loss.backward()
        optimizer.step()  # returns at once
        schedule.step()
        optimizer.zero_grad()

    It takes the place of DistributedDataParallel. The backward pass starts to send gradients as they are made. `step`
    does not wait for them; the next forward pass waits before each module until that module's gradients are averaged,
    and steps its parameters with the given optimizer and the learning rates of the time of `step`. All policies give
    the same parameters, bit for bit. All ranks must make this object, and call its methods, at the same time.

    If code reads `param_groups` between the backward pass and `step`, as a GradScaler does, the gradients hold all
    averages from then on, and `step` steps all parameters at once.

    Args:
        optimizer: the optimizer of parameters of `model`. It must treat each parameter by itself.
        model: the model, without a wrapper.
        policy: the order of transfers: a name of `switchml.client.schedules.POLICIES`, or a `Policy`.
        group: the ranks; None for all.
        bucket_bytes: parameters of neighbouring modules are sent together until they have this many bytes.
        timeout: seconds that a wait for gradients may take.
        tuner: searches the partition and the credit while training goes on, in place of those of the policy.

    Raises:
        ValueError: an argument is out of range, the optimizer has parameters that the model does not have, or the ranks
            have different models or arguments.
        TypeError: the optimizer, the model or the group is of a kind that cannot be scheduled.
        ModuleNotFoundError: there is a tuner, and Optuna is not installed.

    """

    _step_supports_amp_scaling = False  # a GradScaler scales the gradients itself

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        policy: str | Policy = "bytescheduler",
        group: dist.ProcessGroup | None = None,
        bucket_bytes: int = 256 << 10,
        timeout: float = 300.0,
        tuner: Tuner | None = None,
    ) -> None:
        # The base class is not initialized: parameters and state are those of `optimizer` (see __getattr__).
        policy = policy_of(policy)
        classes = check_policy(policy)
        if whole_number(bucket_bytes, "bucket_bytes") < 1:
            raise ValueError(f"bucket_bytes is {bucket_bytes}; it must be positive")
        parent = dist.group.WORLD if group is None else group
        if switchml_group(parent) is None:
            raise TypeError(
                f"scheduling needs a process group of the switchml backend, not {parent!r}: call "
                'init_process_group("switchml")'
            )
        check_optimizer(optimizer)
        self._buckets = Buckets(model, check_model(model, optimizer), bucket_bytes)
        self._optimizer = optimizer
        self._model = model
        check_same(parent, self._buckets.list, (policy, bucket_bytes, tuner is None))
        _copy_from_first_rank(parent, model)
        self._planner = Planner(policy, self._buckets.sizes, tuner, parent)
        self._streams = Streams(parent, classes, positive_seconds(timeout))
        self._gates = self._owners()  # the buckets that a module waits for before it is called, by its name
        self._step = _Step()
        self._pending: dict[int, Round] = {}  # buckets whose parameters are not stepped yet
        self._frozen: list[dict[str, Any]] = []  # values of the param groups for pending buckets
        self._has_warned = False
        self._last_round: Round | None = None
        self._round = self._begin_round()
        self._handles = self._hook()

    # ---- the interface of an optimizer -----------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the given optimizer: `state`, `defaults`, ..."""
        if name == "_optimizer":
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raise: this object is part of the model's hooks, and threads use it.

        Raises:
            TypeError: always.

        """
        raise TypeError(
            "a ScheduledOptimizer cannot be copied or pickled, and neither can its model: copy the model before it is "
            "scheduled or after close(), and save state_dict()"
        )

    def __repr__(self) -> str:
        return f"ScheduledOptimizer({self._optimizer!r}, policy={self._planner.policy!r})"

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The param groups; reading them between the backward pass and `step` waits for all averages."""
        if self._step.travelling and not self._step.in_backward and not self._step.averaged:
            self._warn_once("the param groups were read before step(), as GradScaler and clipping of gradients do")
            self.average_gradients()
        groups: list[dict[str, Any]] = self._optimizer.param_groups
        return groups

    def step(self, closure: None = None) -> None:
        """Say that the gradients of this step are complete. The parameters are stepped when they are needed.

        Raises:
            RuntimeError: `closure` is given, a gradient was not made by a backward pass of the model, a parameter was
                frozen or unfrozen, or an earlier pass failed.

        """
        if closure is not None:
            raise RuntimeError("a closure needs the averages of all gradients at once; call step() without one")
        self._planner.begin_step()
        if self._step.averaged:
            self._require_same_parameters()
            self._optimizer.step()
            self._end_step()
            return
        self._complete_round()
        self._pending = dict.fromkeys(range(len(self._buckets.list)), self._round)
        self._frozen = [_values(group) for group in self._optimizer.param_groups]
        self._end_step()

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: ARG002 - the interface of optimizers
        """Drop all gradients: they are None afterwards. Those that were not used by `step` are lost."""
        if self._step.travelling and not self._step.averaged:
            self.average_gradients()
        if self._step.averaged:
            self._end_step()
        for parameter in self._all_parameters():
            parameter.grad = None
        self._step.kept.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the given optimizer after all steps so far."""
        self.synchronize()
        state: dict[str, Any] = self._optimizer.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of the given optimizer."""
        self.synchronize()
        self._optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:  # noqa: ARG002
        """Raise: the parameters are fixed.

        Raises:
            RuntimeError: always.

        """
        raise RuntimeError("parameters cannot be added: close() this ScheduledOptimizer, and make another one")

    # ---- what this optimizer has in addition -----------------------------------------------------------------------

    @property
    def classes(self) -> list[list[Segment]]:
        """The segments of each class, the most urgent first, in the order in which all ranks send them."""
        return [list(segments) for segments in self._planner.plan]

    def synchronize(self) -> None:
        """Wait for all averages of earlier steps, and step the parameters; needed before they are read directly.

        Raises:
            RuntimeError: an earlier pass or an average failed.
            TimeoutError: an average has not arrived in time.

        """
        self._require_usable()
        for number in list(self._pending):
            self._step_bucket(number)

    def average_gradients(self) -> None:
        """Wait for the averages of this step, and leave them in the parameters' `grad`; `step` then steps at once.

        Raises:
            RuntimeError: as `step` and `synchronize`.
            TimeoutError: an average has not arrived in time.

        """
        if self._step.averaged:
            return
        self._complete_round()
        for number in range(len(self._buckets.buffers)):
            self._streams.wait(self._round, number)
        for number in range(len(self._buckets.list)):
            for parameter, average in self._buckets.averages(number):
                parameter.grad = average
        self._step.averaged = True

    def clip_grad_norm_(
        self,
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> Tensor:
        """Clip the averages by their global norm, as the function in torch.nn.utils; return the norm before.

        This needs all averages, so that the next forward pass cannot start earlier.

        Raises:
            RuntimeError: there are no gradients; or as `step` and `synchronize`.

        """
        if not self._step.travelling and not self._step.kept:
            raise RuntimeError("there are no gradients; call clip_grad_norm_() between the backward pass and step()")
        self._warn_once("clip_grad_norm_() needs all of them")
        self.average_gradients()
        return torch.nn.utils.clip_grad_norm_(
            list(self._buckets.place), max_norm, norm_type, error_if_nonfinite, foreach
        )

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward passes only accumulate gradients on this rank; the first one outside sends the sums."""
        before, self._step.sends = self._step.sends, False
        try:
            yield
        finally:
            self._step.sends = before

    def close(self) -> None:
        """Do all steps, take the hooks from the model, and leave the process groups; on all ranks."""
        self.synchronize()
        for handle in self._handles:
            handle.remove()
        self._streams.close()

    # ---- hooks -----------------------------------------------------------------------------------------------------

    def _hook(self) -> list[Any]:
        handles: list[Any] = []
        for name, module in self._model.named_modules():
            handles += [
                module.register_forward_pre_hook(partial(self._enter, name)),
                module.register_state_dict_pre_hook(lambda *_: self.synchronize()),
                module.register_load_state_dict_pre_hook(lambda *_: self.synchronize()),
            ]
        for parameter in self._buckets.place:
            handles += [
                parameter.register_hook(partial(self._before_gradient, parameter)),
                parameter.register_post_accumulate_grad_hook(self._after_gradient),
            ]
        return handles

    def _owners(self) -> dict[str, list[int]]:
        """Return the buckets with own parameters of each module, by the module's name."""
        place = self._buckets.place
        return {
            name: list(dict.fromkeys(place[own][0] for own in module.parameters(False) if own in place))
            for name, module in self._model.named_modules()
        }

    def _enter(self, name: str, module: nn.Module, _: Any) -> None:
        """Step the parameters of a module that is about to be called; all of the model's outside of training."""
        self._require_usable()
        if self._planner.trace is not None:
            self._planner.trace.call(name)
        if not name and not (module.training and torch.is_grad_enabled()):
            self.synchronize()
        for number in self._gates[name]:
            if number in self._pending:
                self._step_bucket(number)

    def _before_gradient(self, parameter: Tensor, _: Tensor) -> None:
        """Refuse what cannot be averaged, before the gradient is added to earlier ones."""
        name = self._buckets.name_of(parameter)
        if self._buckets.place[parameter][0] in self._pending:
            self._step.in_backward = True  # and not usable any more
            raise RuntimeError(
                f"{name} was used before its last step was done, because the module that has it was not called: call "
                "modules, not their forward(), and before parameters are used directly call synchronize() of the "
                "ScheduledOptimizer"
            )
        if parameter in self._step.travelling:
            self._step.in_backward = True
            raise RuntimeError(
                f"{name} got a second gradient before step(): add the losses up for one backward pass, or run all but "
                "the last pass in `with optimizer.no_sync():`"
            )

    def _after_gradient(self, parameter: Tensor) -> None:
        """Take the gradient of a parameter, and send its bucket if that is complete."""
        if not self._step.sends:
            self._step.kept.add(parameter)
            return
        if not self._step.in_backward:
            self._step.in_backward = True
            Variable._execution_engine.queue_callback(self._after_backward)
        self._take(parameter)

    def _after_backward(self) -> None:
        """Record that a backward pass has ended. It is not called if the pass raises."""
        self._step.in_backward = False

    # ---- a step ----------------------------------------------------------------------------------------------------

    def _require_usable(self) -> None:
        # Modules are called again within a backward pass if it has checkpoints of activations.
        if self._step.in_backward and torch._C._current_graph_task_id() == -1:
            raise RuntimeError(
                "a backward pass raised an error, so this rank may have sent other gradients than the others: the "
                "ScheduledOptimizer is unusable; start the job again from a checkpoint"
            )

    def _take(self, parameter: Tensor) -> None:
        self._buckets.view_of(parameter).copy_(parameter.grad.detach())
        parameter.grad = Travelling.of(parameter)
        self._step.travelling.add(parameter)
        self._step.kept.discard(parameter)
        number, _ = self._buckets.place[parameter]
        if self._buckets.are_in(number, self._step.travelling):
            if self._planner.trace is not None:
                self._planner.trace.complete(number)
            self._streams.ready(self._round, number)

    def _complete_round(self) -> None:
        """Send what this step has left: gradients of passes under `no_sync`, zeros for parameters without one."""
        self._require_same_parameters()
        self._require_own_gradients()
        self.synchronize()  # modules that were not called since the last step
        self._follow_first_rank()
        for parameter in self._buckets.place:
            if parameter in self._step.kept:
                self._take(parameter)
        self._buckets.count(self._step.travelling, self._planner.point())
        for number in range(len(self._buckets.list)):
            if not self._buckets.are_in(number, self._step.travelling):
                self._streams.ready(self._round, number)
        self._streams.ready(self._round, self._buckets.counts_number)

    def _all_parameters(self) -> Iterator[Tensor]:
        """Yield those of all param groups, also those that were frozen when this object was made."""
        for group in self._optimizer.param_groups:
            yield from group["params"]

    def _require_same_parameters(self) -> None:
        """Refuse parameters that were frozen, unfrozen or added since this object was made."""
        for parameter in self._all_parameters():
            if parameter in self._buckets.place:
                change = "" if parameter.requires_grad else "was frozen after the ScheduledOptimizer was made"
            elif parameter.requires_grad:
                change = "was unfrozen, or added to a param group, after the ScheduledOptimizer was made"
            else:
                change = "" if parameter.grad is None else "is frozen and has a gradient, which is not averaged"
            if change:
                names = {own: name for name, own in self._model.named_parameters()}
                raise RuntimeError(
                    f"{names.get(parameter, 'a parameter that is not in the model')} {change}: close() it, and make "
                    "another one for the parameters that are trained now"
                )

    def _require_own_gradients(self) -> None:
        """Refuse gradients that were set or dropped by hand."""
        for parameter in self._buckets.place:
            name = self._buckets.name_of(parameter)
            sent, kept = parameter in self._step.travelling, parameter in self._step.kept
            if parameter.grad is None and (sent or kept):
                raise RuntimeError(
                    f"the gradient of {name} was dropped before step(): call zero_grad() of the ScheduledOptimizer, "
                    "after step()"
                )
            if sent and type(parameter.grad) is not Travelling:
                raise RuntimeError(
                    f"the gradient of {name} was set by hand after it was sent to the other ranks: change gradients "
                    "after average_gradients(), or close() this ScheduledOptimizer"
                )
            if parameter.grad is not None and not sent and not kept:
                raise RuntimeError(
                    f"{name} has a gradient that no backward pass of the model made: gradients must not be set by hand"
                )

    def _follow_first_rank(self) -> None:
        """Take the partition and the credit that rank 0 has sent with the last step."""
        if self._planner.tunes and self._last_round is not None:
            self._streams.wait(self._last_round, self._buckets.counts_number)
            self._planner.adopt(*self._buckets.words())

    def _begin_round(self) -> Round:
        most_urgent, *others = self._planner.next_plan()
        counts = Segment(self._buckets.counts_number, 0, self._buckets.buffers[-1].nbytes, 0)
        classes = [[*most_urgent, counts], *others]
        return self._streams.begin(classes, self._buckets.buffers, self._planner.policy.credit)

    def _end_step(self) -> None:
        if self._planner.trace is not None:
            self._end_first_step(self._planner.trace)
        for parameter in self._buckets.place:
            parameter.grad = None
        self._step.travelling = set()
        self._step.averaged = False
        self._last_round = self._round
        self._round = self._begin_round()

    def _step_bucket(self, number: int) -> None:
        """Wait for a pending bucket, and step its parameters."""
        of = self._pending[number]
        self._streams.wait(of, self._buckets.counts_number)
        self._streams.wait(of, number)
        averages = self._buckets.averages(number)
        # A forward pass in inference mode must not make state that the next step cannot change.
        with torch.inference_mode(False), self._other_gradients_hidden(), self._frozen_values():
            for parameter, average in averages:
                parameter.grad = average
            if averages:
                self._optimizer.step()
            for parameter, _ in averages:
                parameter.grad = None
        del self._pending[number]

    @contextlib.contextmanager
    def _other_gradients_hidden(self) -> Iterator[None]:
        hidden = [(one, one.grad) for one in self._all_parameters() if one.grad is not None]
        for parameter, _ in hidden:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient in hidden:
                parameter.grad = gradient

    @contextlib.contextmanager
    def _frozen_values(self) -> Iterator[None]:
        """Give the param groups the values that they had when `step` was called."""
        groups = self._optimizer.param_groups
        now = [{name: group[name] for name in group if name != "params"} for group in groups]
        for group, values in zip(groups, self._frozen, strict=True):
            group.update(values)
        try:
            yield
            for group, values in zip(groups, self._frozen, strict=True):
                changed = [name for name, value in values.items() if group[name] is not value]
                if changed:
                    raise RuntimeError(
                        f"{type(self._optimizer).__name__} changes {', '.join(changed)} of its param groups in a step, "
                        "so it cannot step some parameters earlier than others; train with DistributedDataParallel"
                    )
        finally:
            for group, values in zip(groups, now, strict=True):
                group.update(values)

    def _warn_once(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning("every step waits until all gradients are averaged: %s", why)

    # ---- the first step --------------------------------------------------------------------------------------------

    def _end_first_step(self, trace: Trace) -> None:
        """Wait for the first step, and plan the next ones as it went."""
        self._planner.trace = None
        self.synchronize()
        self._adopt(trace.called)
        self._planner.learn(trace, self._gates)

    def _adopt(self, called: set[str]) -> None:
        """Let modules wait for the parameters of modules inside them that they use without a call."""
        for name, numbers in self._owners().items():
            if not numbers or name in called:
                continue
            above = name
            while above and above not in called:
                above = above.rpartition(".")[0]
            self._gates[above] = list(dict.fromkeys([*self._gates[above], *numbers]))


def _values(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the values of a param group; tensors, such as a learning rate may be, are copied."""
    return {
        name: value.clone() if isinstance(value, Tensor) else value for name, value in group.items() if name != "params"
    }


def _copy_from_first_rank(group: dist.ProcessGroup, model: nn.Module) -> None:
    """Give all ranks the parameters and buffers of rank 0, as DistributedDataParallel does."""
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), group=group, group_src=0)
