"""The version of PyTorch, where its interfaces differ."""

from typing import Final

import torch

__all__ = ["BEFORE_2_14"]

BEFORE_2_14: Final = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 14)
"""True if Python cannot derive from `c10d::Backend`, and groups have numbers of calls that must be set."""
