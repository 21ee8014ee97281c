"""The code of a benchmark's ranks. It needs only numpy and its backend, so that any interpreter can run it."""

from typing import Final

__all__ = ["STEP_LAYERS"]

STEP_LAYERS: Final = 4
"""The layers of the model of `bench ddp`, which are of one size."""
