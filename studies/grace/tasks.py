"""The models and data: one for the time of steps; digits, the characters of a text, ratings, and shapes."""

from __future__ import annotations

import sysconfig
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

__all__ = ["Characters", "Digits", "Linear", "Ratings", "Shapes", "TrainingTask"]

_LAYERS: Final = 6
_TEXT_BYTES: Final = 1_000_000
_CHARACTERS: Final = 128  # of ASCII; the few others become question marks
_TEST_SHARE: Final = 10  # every tenth part of the text is for the test
_PART_BYTES: Final = 10_000


class TrainingTask(ABC):
    """A model, its data and its optimizer. Every rank has other batches, and all ranks the same model."""

    model: nn.Module
    sign_factor: float = 0.003
    """Factor of the learning rate with methods whose results are 1 and -1, whatever the gradient is."""

    @abstractmethod
    def loss(self, model: nn.Module, rank: int, size: int, step: int) -> Tensor:
        """Return the loss of this rank's batch; `model` is `self.model` or a wrapper of it."""

    def optimizer(self, factor: float, momentum: float) -> torch.optim.Optimizer:
        """Return a new optimizer, SGD unless the task has another one, with `factor` times its learning rate."""
        return torch.optim.SGD(self.model.parameters(), lr=0.1 * factor, momentum=momentum)

    def schedule(self, optimizer: torch.optim.Optimizer, _steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        """Return the schedule of the learning rate over a training of `steps`; constant unless overridden."""
        return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)

    def accuracy(self) -> float:
        """Return the share of right answers in the test data, or what else TRAININGS says; 0 for a task without it."""
        return 0.0


class Linear(TrainingTask):
    """Six square layers with about this number of parameters, and inputs of noise."""

    def __init__(self, parameters: int, seed: int) -> None:
        torch.manual_seed(seed)
        self._width = max(1, round((parameters / _LAYERS) ** 0.5))
        layers = [part for _ in range(_LAYERS) for part in (nn.Linear(self._width, self._width), nn.GELU())]
        self.model = nn.Sequential(*layers)

    def loss(self, model: nn.Module, rank: int, size: int, step: int) -> Tensor:
        """Return the mean square of the outputs."""
        noise = torch.randn(8, self._width, generator=torch.Generator().manual_seed(size * step + rank))
        squares: Tensor = model(noise).square().mean()
        return squares

    def optimizer(self, _factor: float, _momentum: float) -> torch.optim.Optimizer:
        """Return an optimizer without state, which hardly changes the model."""
        return torch.optim.SGD(self.model.parameters(), lr=1e-6)


class Digits(TrainingTask):
    """scikit-learn's 1,797 pictures of digits; two convolutions and two linear layers, 71 thousand parameters."""

    def __init__(self, seed: int) -> None:
        from sklearn.datasets import load_digits

        torch.manual_seed(seed)
        self.model = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10)),
        )
        pixels, labels = load_digits(return_X_y=True)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        pictures = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)[order]
        targets, test = torch.tensor(labels)[order], torch.arange(len(labels)) % 3 == 0
        self._training, self._test = (pictures[~test], targets[~test]), (pictures[test], targets[test])
        self._seed = seed

    def loss(self, model: nn.Module, rank: int, size: int, step: int) -> Tensor:
        """Return the cross entropy of this rank's part of a batch of 64 pictures of all ranks."""
        pictures, labels = self._training
        generator = torch.Generator().manual_seed(1000 * self._seed + step)
        chosen = torch.randperm(len(labels), generator=generator)[:64][rank::size]
        return nn.functional.cross_entropy(model(pictures[chosen]), labels[chosen])

    def accuracy(self) -> float:
        """Return the share of the test pictures whose digit was found."""
        pictures, labels = self._test
        with torch.no_grad():
            return float((self.model(pictures).argmax(1) == labels).float().mean())


class _Transformer(nn.Module):  # type: ignore[misc]
    """Two layers that predict the next character, 120 thousand parameters."""

    def __init__(self, width: int = 64, context: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(_CHARACTERS, width)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(width, _CHARACTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context), persistent=False)

    def forward(self, text: Tensor) -> Any:
        """Return the scores of the next characters."""
        return self.head(self.encoder(self.embed(text) + self.positions, mask=self.mask, is_causal=True))


class Characters(TrainingTask):
    """The sources of Python's standard library; a small transformer predicts each next character."""

    sign_factor = 1.0  # AdamW divides by the size of the gradients

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = _Transformer()
        parts = _text().split(_PART_BYTES)
        self._training = torch.cat([part for number, part in enumerate(parts) if number % _TEST_SHARE])
        self._test = torch.cat(parts[::_TEST_SHARE])
        self._seed = seed

    def loss(self, model: nn.Module, rank: int, size: int, step: int) -> Tensor:
        """Return the cross entropy of eight pieces of the text."""
        text, following = self._pieces(self._training, 8, 1000 * self._seed + size * step + rank)
        return nn.functional.cross_entropy(model(text).flatten(0, 1), following.flatten())

    def optimizer(self, factor: float, momentum: float) -> torch.optim.Optimizer:
        """Return AdamW, with which transformers are trained; its first beta is `momentum`."""
        return torch.optim.AdamW(self.model.parameters(), lr=3e-3 * factor, betas=(momentum, 0.999))

    def schedule(self, optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        """Return a decay along a cosine, as is usual for transformers."""
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def accuracy(self) -> float:
        """Return the share of the next characters that were found in pieces of the test text."""
        text, following = self._pieces(self._test, 128, 0)
        with torch.no_grad():
            return float((self.model(text).argmax(2) == following).float().mean())

    @staticmethod
    def _pieces(text: Tensor, count: int, seed: int, context: int = 64) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(text) - context, (count, 1), generator=torch.Generator().manual_seed(seed))
        places = starts + torch.arange(context)
        return text[places].long(), text[places + 1].long()


class Ratings(TrainingTask):
    """Made data of 1,000 users, who have each taken 20 of 1,000 items; a model of two towers tells which ones.

    Users and items have hidden vectors, and a user takes the items with the largest products, with noise. One item of
    each user is for the test: the hit rate is the share of users for whom it is among the 10 best of itself and 99 that
    were not taken, as in the benchmark of GRACE with MovieLens.
    """

    sign_factor = 1.0
    _USERS, _ITEMS, _TAKEN, _HIDDEN = 1000, 1000, 20, 3
    _OTHERS, _BEST = 99, 10

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        users, items = (torch.randn(count, self._HIDDEN, generator=generator) for count in (self._USERS, self._ITEMS))
        noise = 0.3 * torch.randn(self._USERS, self._ITEMS, generator=generator)
        order = (users @ items.T / self._HIDDEN**0.5 + noise).argsort(dim=1, descending=True)
        taken, others = order[:, : self._TAKEN], order[:, self._TAKEN :]
        taken = taken.gather(1, torch.rand(taken.shape, generator=generator).argsort(dim=1))
        drawn = torch.rand(others.shape, generator=generator).argsort(dim=1)[:, : self._OTHERS]
        self._taken = taken[:, 1:]
        self._test = torch.cat([taken[:, :1], others.gather(1, drawn)], dim=1)
        self._seed = seed
        torch.manual_seed(seed)
        self.model = _Towers(self._USERS, self._ITEMS)

    def loss(self, model: nn.Module, rank: int, size: int, step: int) -> Tensor:
        """Return the logistic loss of 128 taken items, each with four that are drawn from all."""
        generator = torch.Generator().manual_seed(1000 * self._seed + size * step + rank)
        users = torch.randint(self._USERS, (128, 1), generator=generator)
        place = torch.randint(self._taken.shape[1], (128, 1), generator=generator)
        items = torch.cat([self._taken[users, place], torch.randint(self._ITEMS, (128, 4), generator=generator)], dim=1)
        wanted = torch.zeros(items.shape)
        wanted[:, 0] = 1
        return nn.functional.binary_cross_entropy_with_logits(model(users.expand_as(items), items), wanted)

    def optimizer(self, factor: float, momentum: float) -> torch.optim.Optimizer:
        """Return Adam, as usual for recommenders; its first beta is `momentum`."""
        return torch.optim.Adam(self.model.parameters(), lr=0.01 * factor, betas=(momentum, 0.999))

    def accuracy(self) -> float:
        """Return the hit rate."""
        users = torch.arange(self._USERS)[:, None].expand_as(self._test)
        with torch.no_grad():
            scores = self.model(users, self._test)
        better = (scores[:, 1:] >= scores[:, :1]).sum(dim=1)
        return float((better < self._BEST).float().mean())


class _Towers(nn.Module):  # type: ignore[misc]
    """An embedding of users and one of items, and the product of their outputs: 68 thousand parameters."""

    def __init__(self, users: int, items: int, width: int = 32) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.user_layer, self.item_layer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, users: Tensor, items: Tensor) -> Any:
        """Return the scores of these pairs."""
        return (self.user_layer(self.users(users)) * self.item_layer(self.items(items))).sum(dim=-1)


class Shapes(TrainingTask):
    """Made pictures of 24 x 24 pixels with a disc and a square in noise; a small U-Net tells the pixels of each.

    The intersection over union is the mean of the three classes, background, disc and square.
    """

    sign_factor = 1.0
    _SIDE, _TRAINING, _TESTS, _CLASSES = 24, 512, 128, 3

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._pictures, self._labels = self._made(self._TRAINING + self._TESTS, generator)
        self._seed = seed
        torch.manual_seed(seed)
        self.model = _UNet(self._CLASSES)

    def _made(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        rows, columns = torch.meshgrid(torch.arange(self._SIDE), torch.arange(self._SIDE), indexing="ij")
        centres = torch.randint(5, self._SIDE - 5, (4, count, 1, 1), generator=generator)
        sizes = torch.randint(3, 6, (2, count, 1, 1), generator=generator)
        disc = (rows - centres[0]) ** 2 + (columns - centres[1]) ** 2 <= sizes[0] ** 2
        square = torch.maximum((rows - centres[2]).abs(), (columns - centres[3]).abs()) <= sizes[1]
        labels = torch.where(square, 2, torch.where(disc, 1, 0))
        noise = torch.randn(labels.shape, generator=generator)
        return ((labels > 0) + 0.5 * noise)[:, None], labels

    def loss(self, model: nn.Module, rank: int, size: int, step: int) -> Tensor:
        """Return the cross entropy of this rank's part of a batch of 32 pictures of all ranks."""
        generator = torch.Generator().manual_seed(1000 * self._seed + step)
        chosen = torch.randperm(self._TRAINING, generator=generator)[:32][rank::size]
        return nn.functional.cross_entropy(model(self._pictures[chosen]), self._labels[chosen])

    def optimizer(self, factor: float, momentum: float) -> torch.optim.Optimizer:
        """Return Adam; its first beta is `momentum`."""
        return torch.optim.Adam(self.model.parameters(), lr=0.01 * factor, betas=(momentum, 0.999))

    def accuracy(self) -> float:
        """Return the mean intersection over union."""
        with torch.no_grad():
            found = self.model(self._pictures[self._TRAINING :]).argmax(1)
        wanted = self._labels[self._TRAINING :]
        shares = [
            ((found == kind) & (wanted == kind)).sum() / ((found == kind) | (wanted == kind)).sum()
            for kind in range(self._CLASSES)
        ]
        return float(sum(shares) / self._CLASSES)


class _UNet(nn.Module):  # type: ignore[misc]
    """Two levels of convolutions with a connection across, 7 thousand parameters."""

    def __init__(self, classes: int, width: int = 8) -> None:
        super().__init__()
        self.down = self._level(1, width)
        self.bottom = self._level(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.end = nn.Sequential(self._level(2 * width, width), nn.Conv2d(width, classes, 1))

    @staticmethod
    def _level(inputs: int, outputs: int) -> nn.Sequential:
        layers = (nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        return nn.Sequential(*layers, nn.ReLU())

    def forward(self, pictures: Tensor) -> Any:
        """Return the scores of the classes for each pixel."""
        across = self.down(pictures)
        bottom = self.bottom(nn.functional.max_pool2d(across, 2))
        return self.end(torch.cat([across, self.up(bottom)], dim=1))


def _text() -> Tensor:
    """Return the first million bytes of the modules of the standard library, in the order of their names."""
    found = bytearray()
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        found += file.read_text(encoding="utf-8", errors="replace").encode("ascii", errors="replace")
        if len(found) >= _TEXT_BYTES:
            break
    return torch.frombuffer(found, dtype=torch.uint8)[:_TEXT_BYTES]
