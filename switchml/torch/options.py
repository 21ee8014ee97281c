"""Options: set for the whole process by the environment or `configure`, and for one group by `pg_options`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["Options", "configure", "current_options"]

Fallback = Literal["gloo"] | None


@dataclass(frozen=True)
class Options:
    """Options of a process group; pass them as `pg_options` to `init_process_group` or `new_group`.

    Attributes:
        fallback: "gloo": if there is no switch, or it is lost, continue over Gloo, which costs one copy of each tensor;
            None: raise `SwitchMLBackendError`.
        stage_cuda: True: accept CUDA tensors and copy them through pinned memory; False: refuse them.

    """

    fallback: Fallback = None
    stage_cuda: bool = False

    def __post_init__(self) -> None:
        if self.fallback not in (None, "gloo"):
            raise ValueError(f'fallback is {self.fallback!r}; it must be "gloo" or None')


_configured: dict[str, object] = {}


def configure(*, fallback: Fallback | Literal["unset"] = "unset", stage_cuda: bool | None = None) -> Options:
    """Set the options of all process groups that this process makes from now on; they must be the same on every rank.

    These options override SWITCHML_TORCH_FALLBACK (``gloo`` or ``none``) and SWITCHML_STAGE_CUDA (``1`` or ``0``);
    a group's `pg_options` override them.

    Args:
        fallback: see `Options`; unchanged if omitted.
        stage_cuda: see `Options`; unchanged if omitted.

    Returns:
        The options that are in effect now.

    Raises:
        ValueError: a value is not one of those listed in `Options`.

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
    """Return the options of a group that is made without `pg_options`.

    Raises:
        ValueError: an environment variable has an unknown value.

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
