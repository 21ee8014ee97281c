"""The version of PyTorch: whether it is one of those that are tested, and where its interfaces differ."""

import functools
import warnings
from typing import Final

import torch

__all__ = ["BEFORE_2_14", "check_torch_version"]

_OLDEST: Final = (2, 13)
_NEWEST: Final = (2, 15)


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


BEFORE_2_14: Final = _version() < (2, 14)
"""True if Python cannot derive from `c10d::Backend`, and groups have numbers of calls that must be set."""


@functools.cache
def check_torch_version() -> None:
    """Warn once if this version of PyTorch is newer than those that are tested.

    Raises:
        ImportError: it is older than them.

    """
    tested = f"SwitchML is tested with PyTorch {'.'.join(map(str, _OLDEST))} to {'.'.join(map(str, _NEWEST))}"
    if _version() < _OLDEST:
        raise ImportError(f"{tested}, and this is {torch.__version__}, which is too old: install a newer one")
    if _version() > _NEWEST:
        warnings.warn(f"{tested}, and this is {torch.__version__}: if it fails, try one of those", stacklevel=2)
