"""Step time of a recommender under DistributedDataParallel, with dense and sparse gradients: Gloo and switchml.

All ways take turns in one run, step by step (recommender_rank.py). Prints medians over the rounds, and the median
of the rounds' ratios to Gloo's step with the same kind of gradients. Ends with an error if the loss curve of a way is
not that of Gloo.

    python -m studies.omnireduce.recommender --workers 4 --rounds 20
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from studies.torchrun import run_ranks

WORKER = Path(__file__).with_name("recommender_rank.py")
LOSS_TOLERANCE: Final = 1e-4  # relative; the ways round their sums in another order


def other_curves(ways: Mapping[str, Any]) -> list[str]:
    """Return the ways whose losses are not those of Gloo with dense gradients."""
    expected: Sequence[float] = ways["gloo, dense gradients"]["losses"]
    return [
        name
        for name, way in ways.items()
        if not all(
            math.isclose(loss, right, rel_tol=LOSS_TOLERANCE)
            for loss, right in zip(way["losses"], expected, strict=True)
        )
    ]


def print_table(ways: Mapping[str, Any]) -> None:
    """Print a row for each way."""
    print(f"{'':40} {'step ms':>8} {'min':>6} {'max':>6} {'Gloo/this':>10} {'first loss':>11} {'last loss':>10}")
    for name, way in ways.items():
        gloo = ways[f"gloo, {name.rsplit(', ', 1)[1]}"]["seconds"]
        seconds, losses = way["seconds"], way["losses"]
        ratio = statistics.median(theirs / ours for theirs, ours in zip(gloo, seconds, strict=True))
        print(
            f"{name:40} {1e3 * statistics.median(seconds):8.1f} {1e3 * min(seconds):6.1f} {1e3 * max(seconds):6.1f} "
            f"{ratio:10.2f} {losses[0]:11.5f} {losses[-1]:10.5f}"
        )


def main() -> int:
    """Measure and print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100_000, help="of the table (default %(default)s)")
    parser.add_argument("--dimension", type=int, default=64, help="values of a row (default %(default)s)")
    parser.add_argument(
        "--values", type=int, default=256, help="per packet; with more than 256, auto is dense (default %(default)s)"
    )
    parser.add_argument("--transport", choices=("shm", "udp"), default="shm", help="default %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swml-") as directory:
        arguments = [f"--rounds={options.rounds}", f"--rows={options.rows}", f"--dimension={options.dimension}"]
        fabric = ["--values", str(options.values), "--transport", options.transport]
        result = run_ranks(WORKER, options.workers, arguments, Path(directory), fabric)
    print(
        f"Recommender with a table of {options.rows:,} x {options.dimension} ({result['table_bytes'] / 1e6:.1f} MB) "
        f"under DDP, {options.workers} workers over {options.transport}, {options.rounds} rounds, medians"
    )
    print_table(result["ways"])
    wrong = other_curves(result["ways"])
    if wrong:
        print(f"the losses of {'; '.join(wrong)} are not those of Gloo", file=sys.stderr)
        return 1
    print("The loss curves are those of Gloo.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
