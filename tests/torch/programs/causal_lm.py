"""Train a small GPT-2 on the words of a text, as `BACKEND` says: accumulation, clipping, evaluation, and a resumption.

usage: causal_lm.py BACKEND TEXT DIRECTORY
Each rank writes its losses and the evaluations to DIRECTORY/losses-RANK.json.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

LENGTH, STEPS, ACCUMULATED = 32, 6, 2


def blocks(text: Path) -> tuple[TensorDataset, TensorDataset]:
    """Return the text's bytes in blocks of LENGTH, for training and for evaluation."""
    content = torch.frombuffer(bytearray(text.read_bytes()), dtype=torch.uint8).long()
    rows = content[: len(content) // LENGTH * LENGTH].view(-1, LENGTH)
    return TensorDataset(rows[:-16]), TensorDataset(rows[-16:])


class Training:
    """A replica with its optimizer and its schedule."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        config = GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2)
        self.model = DistributedDataParallel(GPT2LMHeadModel(config))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = get_linear_schedule_with_warmup(self.optimizer, 2, 2 * STEPS)
        self.parts = (self.model.module, self.optimizer, self.schedule)

    def step(self, rows: torch.Tensor) -> float:
        """Train with the rows in ACCUMULATED parts, of which only the last is averaged over the ranks."""
        total = 0.0
        for number, part in enumerate(rows.chunk(ACCUMULATED)):
            last = number == ACCUMULATED - 1
            with contextlib.nullcontext() if last else self.model.no_sync():
                loss = self.model(input_ids=part, labels=part).loss / ACCUMULATED
                loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return total

    def evaluate(self, loader: DataLoader[tuple[torch.Tensor, ...]]) -> float:
        """Return the mean loss over the blocks of all ranks."""
        self.model.eval()
        with torch.no_grad():
            mean = torch.stack([self.model.module(input_ids=rows, labels=rows).loss for (rows,) in loader]).mean()
        self.model.train()
        dist.all_reduce(mean)
        return float(mean / dist.get_world_size())

    def save(self, file: Path) -> None:
        """Rank 0 writes the checkpoint; the others wait for it."""
        if dist.get_rank() == 0:
            torch.save([part.state_dict() for part in self.parts], file)
        dist.barrier()

    def load(self, file: Path) -> None:
        """Go on from a checkpoint."""
        for part, state in zip(self.parts, torch.load(file), strict=True):
            part.load_state_dict(state)


def trained(text: Path, directory: Path) -> list[float]:
    """Train STEPS steps, save, and train as many from what was saved. Returns the losses and both evaluations."""
    training_rows, evaluation_rows = blocks(text)
    loader = DataLoader(training_rows, batch_size=8, sampler=DistributedSampler(training_rows, seed=2))
    evaluation = DataLoader(evaluation_rows, batch_size=4, sampler=DistributedSampler(evaluation_rows, shuffle=False))
    rows = [found for (found,), _ in zip(loader, range(2 * STEPS), strict=False)]
    training = Training()
    losses = [training.step(found) for found in rows[:STEPS]]
    losses.append(training.evaluate(evaluation))
    training.save(directory / "checkpoint.pt")
    training = Training()
    training.load(directory / "checkpoint.pt")
    losses += [training.step(found) for found in rows[STEPS:]]
    losses.append(training.evaluate(evaluation))
    return losses


def main(backend: str, text: str, directory: str) -> None:
    """Train in a group of the back end."""
    dist.init_process_group(backend)
    torch.set_num_threads(1)
    # The models must be gone before the group: a DDP model that outlives Gloo's group can wait for it forever, as it
    # ends it with Python's lock, which Gloo's thread needs.
    losses = trained(Path(text), Path(directory))
    dist.destroy_process_group()
    (Path(directory) / f"losses-{os.environ['RANK']}.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main(*sys.argv[1:])
