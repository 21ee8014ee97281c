"""Keeps torch.compile out of this package.

C++ calls the methods of groups and works also while a compiled function runs; torch.compile would then see their Python
frames and compile them. Gloo, which is all C++, has no such frames.
"""

from __future__ import annotations

from types import FunctionType
from typing import Final, TypeVar

from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

__all__ = ["never_compiled"]

ClassT = TypeVar("ClassT", bound=type)

_SKIP: Final = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)


def never_compiled(of: ClassT) -> ClassT:
    """Make torch.compile skip the methods of a class, and all functions that they call (class decorator)."""
    for member in vars(of).values():
        function = member.fget if isinstance(member, property) else member
        if isinstance(function, FunctionType):
            set_code_exec_strategy(function.__code__, _SKIP)
    return of
