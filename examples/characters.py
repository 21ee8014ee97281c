"""The sources of Python's standard library as text, and a small network that predicts its next character."""

import sys
import sysconfig
from pathlib import Path

try:
    import torch
    from torch import Tensor, nn
except ModuleNotFoundError as error:
    sys.exit(f"{error}; install what this example needs: pip install 'switchml[torch]'")

CHARACTERS = 128  # ASCII; all others are left out
CONTEXT = 16  # characters from which the next one is predicted
_MODULES = ("argparse", "ast", "collections/__init__", "difflib", "doctest", "inspect", "subprocess", "typing")


def text() -> Tensor:
    """Return the characters of some modules of the standard library: int64 below CHARACTERS, about half a million."""
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = b"".join(
        (library / f"{module}.py").read_bytes() for module in _MODULES if (library / f"{module}.py").exists()
    )
    return torch.tensor([byte for byte in sources if byte < CHARACTERS])


def batch(characters: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return contexts of shape [size, CONTEXT], drawn at random, and the characters that follow them."""
    starts = torch.randint(0, len(characters) - CONTEXT, (size,), generator=generator)
    windows = characters[starts[:, None] + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, -1]


class Predictor(nn.Module):
    """An embedding and two linear layers, 44 thousand parameters."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Embedding(CHARACTERS, 16),
            nn.Flatten(),
            nn.Linear(CONTEXT * 16, width),
            nn.GELU(),
            nn.Linear(width, CHARACTERS),
        )

    def forward(self, contexts: Tensor) -> Tensor:
        """Return the scores of the next characters, of shape [batch, CHARACTERS]."""
        return self.layers(contexts)
