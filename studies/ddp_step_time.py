"""Step time of DistributedDataParallel on a 25-million-parameter model: Gloo and switchml.

Both are measured in one run, alternating step by step. Prints medians over the rounds, and the median of the rounds'
ratios to Gloo's step; ddp_worker.py explains the columns.

    python -m studies.ddp_step_time --workers 4 --rounds 20
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from studies.torchrun import run_ranks

WORKER = Path(__file__).with_name("ddp_worker.py")


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swml-") as directory:
        result = run_ranks(WORKER, options.workers, [f"--rounds={options.rounds}"], Path(directory))
    ways = result["ways"]
    print(f"DDP, {result['parameters']:,} parameters, {options.workers} workers, {options.rounds} rounds, medians")
    print(
        f"{'':22} {'step ms':>8} {'min':>6} {'max':>6} {'backward ms':>12} {'overlap':>8} {'urgent ms':>10}  Gloo/this"
    )
    for name, rounds in ways.items():
        columns = {key: [figures[key] for figures in rounds] for key in rounds[0]}
        median = {key: statistics.median(values) for key, values in columns.items()}
        ratios = [theirs["step"] / ours["step"] for theirs, ours in zip(ways["gloo"], rounds, strict=True)]
        figures = (
            f"{1e3 * median['step']:8.0f} {1e3 * min(columns['step']):6.0f} {1e3 * max(columns['step']):6.0f} "
            f"{1e3 * median['backward']:12.0f} {100 * median['overlap']:7.0f}% {1e3 * median['urgent']:10.0f}  "
            f"{statistics.median(ratios):.2f}"
        )
        print(f"{name:22} {figures}")


if __name__ == "__main__":
    main()
