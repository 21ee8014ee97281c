"""Train small networks on handwritten digits with PyTorch's DistributedDataParallel; each process runs one rank.

The only difference between the backends is one word on the command line.

    torchrun --nproc-per-node 4 examples/torch_digits.py --backend gloo
    switchml-ctl job start --workers 4 -- python examples/torch_digits.py --backend switchml

Each model is trained once with each seed. Rank 0 writes the loss of every step, the accuracy and the sha256 of every
rank's parameters as JSON. A run is deterministic except for the order in which the backend sums; the switch's sums do
not depend on an order.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import torch
    import torch.distributed as dist
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
except ModuleNotFoundError as error:
    sys.exit(f"{error}; install what this example needs: pip install 'switchml[torch,demo]'")

CLASSES = 10
TEST_SHARE = 3  # every third picture is for the test
SIDE = 8  # pixels


class Perceptron(nn.Module):
    """Two linear layers, 19 thousand parameters."""

    def __init__(self, hidden: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the scores of the classes."""
        return self.layers(pixels)


class Convolutional(nn.Module):
    """Two convolutions and two linear layers, 71 thousand parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * (SIDE // 2) ** 2, 128),
            nn.ReLU(),
            nn.Linear(128, CLASSES),
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the scores of the classes."""
        return self.layers(pixels)


class Transformer(nn.Module):
    """Two encoder layers over the sixteen 2x2 patches of a picture, 23 thousand parameters."""

    def __init__(self, width: int = 32, patch: int = 2) -> None:
        super().__init__()
        places = (SIDE // patch) ** 2
        self.cut = nn.Unfold(patch, stride=patch)
        self.embed = nn.Linear(patch * patch, width)
        self.positions = nn.Parameter(0.1 * torch.randn(places, width))
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(places * width, CLASSES)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the scores of the classes."""
        patches = self.cut(pixels).transpose(1, 2)
        return self.head(self.encoder(self.embed(patches) + self.positions).flatten(1))


MODELS = {"perceptron": Perceptron, "convolutional": Convolutional, "transformer": Transformer}


def digits(seed: int) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return pictures and labels for training and for the test: scikit-learn's 1,797 pictures, shuffled once."""
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    pictures = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, SIDE, SIDE)[order]
    targets = torch.tensor(labels)[order]
    test = torch.arange(len(targets)) % TEST_SHARE == 0
    return (pictures[~test], targets[~test]), (pictures[test], targets[test])


def batches(count: int, seed: int, options: argparse.Namespace) -> Iterator[torch.Tensor]:
    """Yield this rank's part of each batch. The whole batches do not depend on the number of ranks."""
    rank, workers = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(options.epochs):
        order = torch.randperm(count, generator=generator)
        for start in range(0, count - options.batch + 1, options.batch):
            yield order[start : start + options.batch][rank::workers]


def sha256(model: nn.Module) -> str:
    """Return the sha256 of all parameters' bits."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def train(name: str, seed: int, options: argparse.Namespace) -> dict:
    """Train the model `name` as one rank and return the result that rank 0 writes."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # because the ranks share the machine's cores
    torch.use_deterministic_algorithms(True)
    (pictures, labels), (test_pictures, test_labels) = digits(seed)
    model = DistributedDataParallel(MODELS[name]())
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    steps = options.epochs * (len(labels) // options.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options.learning_rate, total_steps=steps)
    losses = []
    began = time.perf_counter()
    for chosen in batches(len(labels), seed, options):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pictures[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    seconds = time.perf_counter() - began
    mean_losses = torch.stack(losses).double()  # which narrow lanes (SWITCHML_TORCH_WIRE) do not round
    dist.all_reduce(mean_losses, op=dist.ReduceOp.AVG)
    hashes: list = [None] * dist.get_world_size()
    dist.all_gather_object(hashes, sha256(model))
    with torch.no_grad():
        accuracy = float((model.module(test_pictures).argmax(dim=1) == test_labels).float().mean())
    return {
        "backend": dist.get_backend(),
        "model": name,
        "seed": seed,
        "workers": dist.get_world_size(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "parameters_sha256": hashes,
        "steps": len(losses),
        "seconds": seconds,
        "test_accuracy": accuracy,
        "loss": mean_losses.tolist(),
    }


def summary(result: dict) -> str:
    """Return a line about a result."""
    hashes = sorted(set(result["parameters_sha256"]))
    return (
        f"{result['model']}, seed {result['seed']}, {result['workers']} workers, {result['backend']}: accuracy "
        f"{result['test_accuracy']:.4f}, {result['steps']} steps in {result['seconds']:.1f} s, parameters "
        f"{'the same' if len(hashes) == 1 else 'DIFFERENT'} on all ranks, sha256 {' '.join(hashes)}"
    )


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("switchml", "gloo"), default="switchml")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["convolutional"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="of shuffling and initial weights")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the pictures (default %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="pictures per step of all ranks (default %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="maximum, of AdamW (default %(default)s)")
    parser.add_argument("--output", type=Path, help="file for the results (JSON)")
    options = parser.parse_args()

    dist.init_process_group(options.backend)
    results = []
    for seed in options.seeds:
        for name in options.models:
            results.append(train(name, seed, options))
            if dist.get_rank() == 0:
                print(summary(results[-1]), flush=True)
    if dist.get_rank() == 0 and options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
