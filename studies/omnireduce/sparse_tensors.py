"""Time of an all-reduce of a sparse tensor, the gradient of an embedding table: Gloo and switchml.

Both take turns in one run (sparse_tensors_rank.py). Prints medians over the rounds, and the median of the rounds'
ratios.

    python -m studies.omnireduce.sparse_tensors --workers 4 --transport udp
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from studies.torchrun import run_ranks

WORKER = Path(__file__).with_name("sparse_tensors_rank.py")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table (default %(default)s)")
    parser.add_argument("--dimension", type=int, default=64, help="values of a row (default %(default)s)")
    parser.add_argument("--draws", type=int, default=17_000, help="rows that a rank draws (default %(default)s)")
    parser.add_argument("--values", type=int, default=2048, help="per packet (default %(default)s)")
    parser.add_argument("--transport", choices=("shm", "udp"), default="shm", help="default %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swml-") as directory:
        arguments = [f"--{name}={getattr(options, name)}" for name in ("rounds", "rows", "dimension", "draws")]
        fabric = ["--values", str(options.values), "--transport", options.transport]
        result = run_ranks(WORKER, options.workers, arguments, Path(directory), fabric)
    gloo, ours = result["ways"]["gloo"], result["ways"]["switchml"]
    ratio = statistics.median(theirs / own for theirs, own in zip(gloo, ours, strict=True))
    print(
        f"Sparse tensor of {options.rows:,} x {options.dimension}, {result['union']:,} rows at any of "
        f"{options.workers} workers, over {options.transport} with {options.values} values per packet: "
        f"gloo {1e3 * statistics.median(gloo):.1f} ms, switchml {1e3 * statistics.median(ours):.1f} ms, "
        f"gloo / switchml {ratio:.2f}"
    )


if __name__ == "__main__":
    main()
