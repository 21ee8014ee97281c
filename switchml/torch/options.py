"""What can be chosen: for the whole process by the environment or `configure`, for one group by `pg_options`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["Options", "configure", "current_options"]

Fallback = Literal["gloo"] | None


@dataclass(frozen=True)
class Options:
    """Of a process group; give it as `pg_options` to `init_process_group` or `new_group`.

    Attributes:
        fallback: "gloo": where there is no switch, or it is lost, go on over Gloo, at the price of one copy of each
            tensor; None: raise `SwitchMLBackendError`.
        stage_cuda: take CUDA tensors and copy them through pinned memory; False: refuse them.

    """

    fallback: Fallback = None
    stage_cuda: bool = False

    def __post_init__(self) -> None:
        if self.fallback not in (None, "gloo"):
            raise ValueError(f'fallback is {self.fallback!r}; it must be "gloo" or None')


_configured: dict[str, object] = {}


def configure(*, fallback: Fallback | Literal["unset"] = "unset", stage_cuda: bool | None = None) -> Options:
    """Choose for all process groups that this process makes from now on; the same on every rank.

    What is chosen here is stronger than SWITCHML_TORCH_FALLBACK (``gloo`` or ``none``) and SWITCHML_STAGE_CUDA
    (``1`` or ``0``), and weaker than a group's `pg_options`.

    Args:
        fallback: see `Options`; left out, it stays as it is.
        stage_cuda: see `Options`; left out, it stays as it is.

    Returns:
        What holds now.

    Raises:
        ValueError: a value is none of those that there are.

    """
    chosen: dict[str, object] = {}
    if fallback != "unset":
        chosen["fallback"] = fallback
    if stage_cuda is not None:
        chosen["stage_cuda"] = stage_cuda
    Options(**chosen)  # type: ignore[arg-type]
    _configured.update(chosen)
    return current_options()


def current_options() -> Options:
    """Return what holds for a group that is made without options of its own.

    Raises:
        ValueError: an environment variable has none of its values.

    """
    options = Options(
        fallback=_choice("SWITCHML_TORCH_FALLBACK", {"": None, "none": None, "gloo": "gloo"}),  # type: ignore[arg-type]
        stage_cuda=bool(_choice("SWITCHML_STAGE_CUDA", {"": False, "0": False, "1": True})),
    )
    return replace(options, **_configured)  # type: ignore[arg-type]


def _choice(name: str, values: dict[str, object]) -> object:
    text = os.environ.get(name, "")
    if text not in values:
        raise ValueError(f"{name} is {text!r}; it must be one of {', '.join(repr(value) for value in values if value)}")
    return values[text]
