"""Write pictures that matplotlib draws, which SwitchML does not require."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from switchml.common.errors import DrawingError
from switchml.common.installation import install_command

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_picture"]

_SUFFIXES: Final = (".png", ".svg")
_DPI: Final = 120


def write_picture(path: Path, draw: Callable[[], Figure]) -> None:
    """Write the figure that `draw` returns; the file's suffix, .png or .svg, selects the format.

    `draw` imports matplotlib. Raises DrawingError: another suffix, matplotlib is missing, or the file cannot be
    written.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise DrawingError(f"{path}: the file name of a picture must end in {' or '.join(_SUFFIXES)}")
    try:
        figure = draw()
    except ImportError as error:
        raise DrawingError(
            f"pictures need matplotlib ({error}); install it with `{install_command('bench')}`"
        ) from error
    try:
        figure.savefig(path, dpi=_DPI)
    except OSError as error:
        raise DrawingError(f"{path} cannot be written: {error.strerror}") from error
