"""Train the digits of torch_digits.py over Gloo and through the switch, compare the accuracies, and draw the losses.

    python examples/torch_digits_compare.py --workers 4 8 --lanes 32 16 8-stochastic --output-dir build/digits

It starts a fabric on this machine and runs the trainings under torchrun: over Gloo, and through the switch with lanes
of each width. The accuracy varies more between seeds than between these ways, so each way trains every model with the
same seeds, and the accuracies are compared seed by seed. The trainings of the first seed run twice through the switch.
The exit status is 1 if the mean accuracy with lanes of 32 or 16 bits differs by more than half a point from that over
Gloo, or with 8 bits by more than a point, or if the parameters under switchml differ between ranks or between the two
runs.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ALLOWED_DIFFERENCE = {"32": 0.005, "16": 0.005, "8": 0.01, "float": 0.005}  # by the bits of a lane
DEADLINE = 3600  # seconds for the trainings of one way
AT_ONCE = 3  # ways that train at the same time, because the ranks of one mostly wait for each other
GLOO = "gloo"
FLOAT = "float"  # the switch adds up floats as such
LANES = ("32", "16", "8", "16-stochastic", "8-stochastic", FLOAT)
EXAMPLE = Path(__file__).with_name("torch_digits.py")
BEGIN, END = "<!-- digits -->", "<!-- end -->"

Results = dict[str, list[dict]]
"""The results of one model and number of workers by way (GLOO or one of LANES), one for each seed."""


def backend_of(way: str) -> tuple[str, dict[str, str]]:
    """Return the backend of a way and its environment variables."""
    if way == GLOO:
        return GLOO, {}
    if way == FLOAT:
        return "switchml", {"SWITCHML_TORCH_WIRE": "floats"}
    bits, _, rounding = way.partition("-")
    return "switchml", {"SWITCHML_TORCH_WIRE": f"blocks:bits={bits},rounding={rounding or 'nearest'}"}


def title_of(way: str) -> str:
    """Return the heading of a way's column."""
    bits, _, rounding = way.partition("-")
    names = {GLOO: "Gloo", FLOAT: "floats"}
    return names.get(way, f"{bits} bits{rounding and ', '}{rounding}")


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Return the mean and its standard error, which is 0 for a single value."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return statistics.fmean(values), error


def differences(results: Results, way: str) -> list[float]:
    """Return how much more accurate than Gloo a way is, for each seed."""
    pairs = zip(results[way], results[GLOO], strict=True)
    return [mine["test_accuracy"] - gloo["test_accuracy"] for mine, gloo in pairs]


def judge(results: Results, again: dict[str, dict]) -> list[str]:
    """Return what is wrong with the results of one model and number of workers.

    `again` has the results of the second run with the first seed, by way.
    """
    wrong = []
    for way in [way for way in results if way != GLOO]:
        first = results[way][0]
        where = f"{first['model']}, {first['workers']} workers, {title_of(way)}"
        difference = statistics.fmean(differences(results, way))
        if abs(difference) > ALLOWED_DIFFERENCE[way.partition("-")[0]]:
            wrong.append(f"{where}: the mean accuracy differs from Gloo's by {100 * difference:+.2f} points")
        hashes = [result["parameters_sha256"] for result in results[way]]
        wrong += [f"{where}: the parameters differ between ranks: {of}" for of in hashes if len(set(of)) != 1]
        if any(first[value] != again[way][value] for value in ("parameters_sha256", "loss")):
            wrong.append(f"{where}: two runs through the switch differ")
    return wrong


def draw(path: Path, results: dict[tuple[str, int], Results]) -> None:
    """Draw the losses of the first seed, with a panel for each model and number of workers."""
    from matplotlib.figure import Figure

    models = list(dict.fromkeys(model for model, _ in results))
    counts = list(dict.fromkeys(workers for _, workers in results))
    figure = Figure(figsize=(4.5 * len(counts), 3 * len(models)), layout="constrained")
    panels = figure.subplots(len(models), len(counts), sharex=True, squeeze=False)
    for (model, workers), ways in results.items():
        panel = panels[models.index(model)][counts.index(workers)]
        for way, trainings in ways.items():
            width, alpha = (2.5, 0.6) if way == GLOO else (0.8, 1.0)
            panel.plot(trainings[0]["loss"], linewidth=width, alpha=alpha, label=title_of(way))
        panel.set_yscale("log")
        panel.set_title(f"{model}, {workers} workers", fontsize=9)
        panel.legend(fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel("step")
    for row in panels:
        row[0].set_ylabel("training loss")
    figure.savefig(path, dpi=80)


def table(results: dict[tuple[str, int], Results]) -> str:
    """Return the accuracies as a table in Markdown, with the differences to Gloo in points."""
    ways = list(next(iter(results.values())))
    lines = [f"| model | workers | {' | '.join(map(title_of, ways))} |", "|---|---|" + "---|" * len(ways)]
    for (model, workers), of_ways in results.items():
        cells = [f"{100 * statistics.fmean(one['test_accuracy'] for one in of_ways[GLOO]):.2f} %"]
        for way in ways[1:]:
            mean = statistics.fmean(one["test_accuracy"] for one in of_ways[way])
            difference, error = mean_and_error(differences(of_ways, way))
            points = round(100 * difference, 2) + 0.0  # not -0.0
            cells.append(f"{100 * mean:.2f} % ({points:+.2f} ± {100 * error:.2f})")
        lines.append(f"| {model} | {workers} | {' | '.join(cells)} |")
    return "\n".join(lines)


def fill(page: str, text: str) -> str:
    """Return `page` with `text` between BEGIN and END."""
    head, found, tail = page.partition(BEGIN)
    _, closed, rest = tail.partition(END)
    if not found or not closed:
        raise SystemExit(f"torch_digits_compare: the page has no place for the table: `{BEGIN}` and, below, `{END}`")
    return f"{head}{BEGIN}\n{text}\n{END}{rest}"


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--models", nargs="+", default=["perceptron", "convolutional", "transformer"])
    parser.add_argument("--lanes", nargs="+", choices=LANES, default=["32", "16", "8-stochastic"])
    parser.add_argument("--seeds", type=int, default=5, help="number of trainings (default %(default)s)")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument(
        "--output-dir", type=Path, default=Path("digits"), help="for JSON and PNG (default %(default)s)"
    )
    parser.add_argument("--into", type=Path, metavar="FILE.md", help=f"write the table there after `{BEGIN}`")
    return parser.parse_args()


class Trainings:
    """The trainings over Gloo and through the switch, on a fabric that is up; AT_ONCE ways train at the same time."""

    def __init__(self, options: argparse.Namespace, environment: dict[str, str]) -> None:
        self.options = options
        self.environment = environment

    def run(self) -> tuple[dict[tuple[str, int], Results], list[str]]:
        """Run all of them; return the results by model and number of workers, and what is wrong with them."""
        options, ways = self.options, [GLOO, *self.options.lanes]
        seeds = range(1, options.seeds + 1)
        pool = ThreadPoolExecutor(AT_ONCE)
        try:
            trainings = {
                (workers, way, again): pool.submit(self.train, way, workers, [1] if again else seeds, again)
                for workers in options.workers
                for way in ways
                for again in (False, True)[: 1 + (way != GLOO)]
            }
            done = {key: training.result() for key, training in trainings.items()}
        finally:
            pool.shutdown(cancel_futures=True)
        results: dict[tuple[str, int], Results] = {}
        wrong = []
        for place, model in enumerate(options.models):
            for workers in options.workers:
                of = {way: done[workers, way, False][place :: len(options.models)] for way in ways}
                wrong += judge(of, {way: done[workers, way, True][place] for way in options.lanes})
                results[model, workers] = of
        return results, wrong

    def train(self, way: str, workers: int, seeds: Sequence[int], again: bool) -> list[dict]:
        """Train all models with all seeds and return what rank 0 wrote, seed by seed."""
        options = self.options
        backend, variables = backend_of(way)
        output = options.output_dir / f"{workers}-{way}{'-again' if again else ''}.json"
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
        arguments = [f"--backend={backend}", f"--epochs={options.epochs}", f"--output={output}"]
        arguments += ["--models", *options.models, "--seeds", *map(str, seeds)]
        command = [*launcher, str(EXAMPLE), *arguments]
        subprocess.run(command, env=self.environment | variables, timeout=DEADLINE, check=True)
        return list(json.loads(output.read_text(encoding="utf-8")))


def main() -> int:
    """Run all trainings, print a table and draw the losses."""
    options = arguments()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    control = str(Path(sysconfig.get_path("scripts")) / "switchml-ctl")
    with tempfile.TemporaryDirectory(prefix="swml-") as run_dir:
        environment = {**os.environ, "SWITCHML_RUN_DIR": run_dir, "OMP_NUM_THREADS": "1"}
        subprocess.run([control, "up"], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            results, wrong = Trainings(options, environment).run()
        finally:
            subprocess.run([control, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)
    draw(options.output_dir / "loss.png", results)
    print(table(results))
    if options.into:
        options.into.write_text(fill(options.into.read_text(encoding="utf-8"), table(results)), encoding="utf-8")
    for line in wrong:
        print(f"torch_digits_compare: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
