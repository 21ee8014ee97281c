"""Train a two-layer network on handwritten digits: each worker has its own shard, the switch averages the gradients.

Run it with

    switchml-ctl job start --workers 8 -- python examples/train_digits.py

Rank 0 then trains the same model again in one process, without the switch, on the same batches (with the mean gradient
over all shards), compares the results, and writes training.json and training.png to the job's directory.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

try:
    from sklearn.datasets import load_digits
except ModuleNotFoundError as error:
    sys.exit(f"{error}; install what this example needs: pip install 'switchml[demo]'")

import switchml

Floats = NDArray[np.float32]
Parameters = list[Floats]

CLASSES = 10
TEST_SHARE = 5  # every fifth picture is for the test
REQUIRED_ACCURACY = 0.95
ALLOWED_DIFFERENCE = 0.01
LEARNING_RATE = 0.2
MOMENTUM = 0.9


class Digits:
    """scikit-learn's 1,797 pictures of 8x8 pixels, shuffled once and distributed over `shards` shards."""

    def __init__(self, shards: int, seed: int) -> None:
        pixels, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(seed).permutation(len(labels))
        pixels, labels = (pixels[order] / 16).astype(np.float32), labels[order]
        test = np.arange(len(labels)) % TEST_SHARE == 0
        self.test = pixels[test], labels[test]
        train_pixels, train_labels = pixels[~test], labels[~test]
        size = len(train_labels) // shards  # equal sizes, so that the mean over shards is the mean over pictures
        self.shards = [(train_pixels[i::shards][:size], train_labels[i::shards][:size]) for i in range(shards)]


def batches(
    shard: tuple[Floats, NDArray[np.int64]], batch: int, epochs: int, seed: int, rank: int
) -> Iterator[tuple[Floats, NDArray[np.int64]]]:
    """Yield the batches of one shard, shuffled again in each epoch; they depend only on seed and rank."""
    pixels, labels = shard
    batch = min(batch, len(labels))
    generator = np.random.default_rng((seed, rank))
    for _ in range(epochs):
        order = generator.permutation(len(labels))
        for start in range(0, len(labels) - batch + 1, batch):
            chosen = order[start : start + batch]
            yield pixels[chosen], labels[chosen]


def initial_parameters(pixels: int, hidden: int, seed: int) -> Parameters:
    """Return the initial weights and biases of both layers."""
    generator = np.random.default_rng(seed)
    sizes = [(pixels, hidden), (hidden, CLASSES)]
    parameters: Parameters = []
    for inputs, outputs in sizes:
        parameters.append(generator.normal(0, np.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32))
        parameters.append(np.zeros(outputs, np.float32))
    return parameters


def logits(parameters: Parameters, pixels: Floats) -> tuple[Floats, Floats]:
    """Return the scores of the classes and the hidden layer's output."""
    hidden = np.maximum(pixels @ parameters[0] + parameters[1], 0)
    return hidden @ parameters[2] + parameters[3], hidden


def loss_and_gradients(parameters: Parameters, pixels: Floats, labels: NDArray[np.int64]) -> tuple[float, Parameters]:
    """Return the mean cross-entropy of a batch and its gradients, one array for each of `parameters`."""
    scores, hidden = logits(parameters, pixels)
    scores -= scores.max(axis=1, keepdims=True)
    probabilities = np.exp(scores)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(-np.log(probabilities[rows, labels] + 1e-12).mean())
    scores_gradient = probabilities
    scores_gradient[rows, labels] -= 1
    scores_gradient /= np.float32(len(labels))
    hidden_gradient = (scores_gradient @ parameters[2].T) * (hidden > 0)
    return loss, [
        np.ascontiguousarray(pixels.T @ hidden_gradient),
        hidden_gradient.sum(axis=0),
        np.ascontiguousarray(hidden.T @ scores_gradient),
        scores_gradient.sum(axis=0),
    ]


class Momentum:
    """Gradient descent with momentum."""

    def __init__(self, parameters: Parameters) -> None:
        self.velocities = [np.zeros_like(parameter) for parameter in parameters]

    def step(self, parameters: Parameters, gradients: Parameters) -> None:
        """Update `parameters` in place."""
        for parameter, velocity, gradient in zip(parameters, self.velocities, gradients, strict=True):
            velocity *= np.float32(MOMENTUM)
            velocity -= np.float32(LEARNING_RATE) * gradient
            parameter += velocity


def accuracy(parameters: Parameters, test: tuple[Floats, NDArray[np.int64]]) -> float:
    """Return the fraction of the test pictures that are recognised."""
    pixels, labels = test
    return float((logits(parameters, pixels)[0].argmax(axis=1) == labels).mean())


def train(
    comm: switchml.Communicator, digits: Digits, parameters: Parameters, options: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """Train on this rank's shard together with the other ranks; return the loss and all-reduce seconds of each step."""
    for parameter in parameters:
        comm.broadcast(parameter, root=0)
    optimizer = Momentum(parameters)
    losses, seconds = [], []
    began = shown = time.perf_counter()
    stream = batches(digits.shards[comm.rank], options.batch, options.epochs, options.seed, comm.rank)
    for step, (pixels, labels) in enumerate(stream, 1):
        loss, gradients = loss_and_gradients(parameters, pixels, labels)
        mean_loss = np.array([loss], np.float32)
        start = time.perf_counter()
        works = [comm.all_reduce(array, op="avg", async_op=True) for array in (*gradients, mean_loss)]
        for work in works:
            work.wait()
        now = time.perf_counter()
        seconds.append(now - start)
        losses.append(float(mean_loss[0]))
        optimizer.step(parameters, gradients)
        if comm.rank == 0 and now - shown >= 1:
            share = accuracy(parameters, digits.test)
            print(f"step {step}: loss {losses[-1]:.4f}, accuracy {share:.4f}, {step / (now - began):.0f} steps/s")
            shown = now
    return losses, seconds


def train_alone(digits: Digits, options: argparse.Namespace) -> tuple[Parameters, list[float]]:
    """Train in one process, each step with the mean gradient of all shards' batches; return parameters and losses."""
    parameters = initial_parameters(digits.test[0].shape[1], options.hidden, options.seed)
    optimizer = Momentum(parameters)
    streams = [
        batches(shard, options.batch, options.epochs, options.seed, rank) for rank, shard in enumerate(digits.shards)
    ]
    losses = []
    for step in zip(*streams, strict=True):
        results = [loss_and_gradients(parameters, pixels, labels) for pixels, labels in step]
        losses.append(sum(loss for loss, _ in results) / len(results))
        columns = zip(*(gradients for _, gradients in results), strict=True)
        optimizer.step(parameters, [np.mean(column, axis=0, dtype=np.float32) for column in columns])
    return parameters, losses


def gather_hashes(comm: switchml.Communicator, parameters: Parameters) -> list[str]:
    """Return the sha256 of every rank's parameters, by rank."""
    digest = hashlib.sha256()
    for parameter in parameters:
        digest.update(parameter.tobytes())
    words = np.zeros((comm.world_size, 8), np.int32)  # each rank fills its row; the others add zeros to it
    words[comm.rank] = np.frombuffer(digest.digest(), np.int32)
    comm.all_reduce(words)
    return [row.tobytes().hex() for row in words]


def plot(path: Path, losses: list[float], reference: list[float], seconds: list[float], workers: int) -> None:
    """Draw the losses of both trainings and the time of each step's all-reduce."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(losses, label=f"{workers} workers, summed by the switch")
    above.plot(reference, "--", label="one process, no network")
    above.set_ylabel("training loss")
    above.set_yscale("log")
    above.legend()
    below.plot([1000 * value for value in seconds], linewidth=0.8)
    below.set_ylabel("all-reduce, ms")
    below.set_yscale("log")
    below.set_xlabel("step")
    figure.savefig(path, dpi=120)


def report(
    directory: Path,
    digits: Digits,
    parameters: Parameters,
    hashes: list[str],
    curves: tuple[list[float], list[float]],
    seconds: float,
    options: argparse.Namespace,
) -> list[str]:
    """Compare with the training in one process, write training.json and training.png, and return what is wrong."""
    losses, allreduce = curves
    reference, reference_losses = train_alone(digits, options)
    elements = len(losses) * sum(parameter.size for parameter in parameters)
    result = {
        "workers": len(hashes),
        "test_accuracy": accuracy(parameters, digits.test),
        "reference_accuracy": accuracy(reference, digits.test),
        "parameters_sha256": hashes,
        "steps": len(losses),
        "seconds": seconds,
        "allreduce_seconds_median": float(np.median(allreduce)),
        "elements": elements,
        "elements_per_second": elements / sum(allreduce),
        "loss": losses,
        "reference_loss": reference_losses,
        "allreduce_seconds": allreduce,
    }
    (directory / "training.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    plot(directory / "training.png", losses, reference_losses, allreduce, len(hashes))
    median = 1000 * result["allreduce_seconds_median"]
    print(f"accuracy {result['test_accuracy']:.4f}, in one process {result['reference_accuracy']:.4f}")
    print(f"{len(losses)} steps in {seconds:.1f} s, of which an all-reduce takes {median:.2f} ms (median)")
    failures = []
    if len(set(hashes)) != 1:
        failures.append(f"the parameters differ between ranks: {hashes}")
    reached = result["test_accuracy"], result["reference_accuracy"]
    if min(reached) < REQUIRED_ACCURACY:
        failures.append(f"an accuracy is below {REQUIRED_ACCURACY}: {reached[0]:.4f}, in one process {reached[1]:.4f}")
    difference = abs(reached[0] - reached[1])
    if difference > ALLOWED_DIFFERENCE:
        failures.append(f"the accuracies differ by {difference:.4f}, more than {ALLOWED_DIFFERENCE}")
    return failures


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=256, help="units of the hidden layer (default %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="pictures per worker and step (default %(default)s)")
    parser.add_argument("--epochs", type=int, default=40, help="passes over the shard (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of shuffling and initial weights (default %(default)s)")
    options = parser.parse_args()
    directory = Path(os.environ.get("SWITCHML_JOB_DIR", "."))
    sys.stdout.reconfigure(line_buffering=True)  # also when the output is a pipe

    with switchml.connect() as comm:
        digits = Digits(comm.world_size, options.seed)
        # Only the parameters of rank 0 are used, which it broadcasts.
        parameters = initial_parameters(digits.test[0].shape[1], options.hidden, options.seed + comm.rank)
        comm.barrier()
        began = time.perf_counter()
        curves = train(comm, digits, parameters, options)
        seconds = time.perf_counter() - began
        hashes = gather_hashes(comm, parameters)
        if comm.rank == 0:
            failures = report(directory, digits, parameters, hashes, curves, seconds, options)
            if failures:  # an exception that leaves the `with` block makes the job FAILED
                sys.exit("\n".join(f"train_digits: {failure}" for failure in failures))


if __name__ == "__main__":
    main()
