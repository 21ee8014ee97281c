"""Train the digits of torch_digits.py over Gloo and through the switch, and draw the loss curves together.

    python examples/torch_digits_compare.py --workers 4 8 --output-dir build/digits

It starts a fabric on this machine, runs each training under torchrun, once over Gloo and twice through the switch, and
stops the fabric. The exit status is 1 if the accuracies differ by more than half a point, or if the parameters under
switchml differ between ranks or between the two runs.
"""

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ALLOWED_DIFFERENCE = 0.005
DEADLINE = 900  # seconds for one training
RUNS = ("gloo", "switchml", "switchml again")
EXAMPLE = Path(__file__).with_name("torch_digits.py")


def train(run: str, model: str, workers: int, options: argparse.Namespace, environment: dict[str, str]) -> dict:
    """Train once and return what rank 0 wrote."""
    output = options.output_dir / f"{model}-{workers}-{run.replace(' ', '-')}.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    arguments = [f"--backend={run.split()[0]}", f"--model={model}", f"--epochs={options.epochs}", f"--output={output}"]
    subprocess.run([*launcher, str(EXAMPLE), *arguments], env=environment, timeout=DEADLINE, check=True)
    return dict(json.loads(output.read_text(encoding="utf-8")))


def judge(gloo: dict, switchml: dict, again: dict) -> list[str]:
    """Return what is wrong with the results of one model and number of workers."""
    where = f"{gloo['model']}, {gloo['workers']} workers"
    wrong = []
    difference = abs(gloo["test_accuracy"] - switchml["test_accuracy"])
    if difference > ALLOWED_DIFFERENCE:
        wrong.append(f"{where}: the accuracies differ by {100 * difference:.2f} points")
    if len(set(switchml["parameters_sha256"])) != 1:
        wrong.append(f"{where}: the parameters differ between ranks: {switchml['parameters_sha256']}")
    if switchml["parameters_sha256"] != again["parameters_sha256"] or switchml["loss"] != again["loss"]:
        wrong.append(f"{where}: two runs through the switch differ")
    return wrong


def draw(path: Path, results: dict[tuple[str, int], dict[str, dict]]) -> None:
    """Draw the losses of both backends, with a panel for each model and number of workers."""
    from matplotlib.figure import Figure

    models = list(dict.fromkeys(model for model, _ in results))
    counts = list(dict.fromkeys(workers for _, workers in results))
    figure = Figure(figsize=(4.5 * len(counts), 3 * len(models)), layout="constrained")
    panels = figure.subplots(len(models), len(counts), sharex=True, squeeze=False)
    for (model, workers), runs in results.items():
        panel = panels[models.index(model)][counts.index(workers)]
        gloo, switchml = runs["gloo"], runs["switchml"]
        panel.plot(gloo["loss"], color="tab:orange", linewidth=2.5, alpha=0.6, label="gloo")
        panel.plot(switchml["loss"], color="tab:blue", linewidth=0.8, label="switchml")
        panel.set_yscale("log")
        accuracies = f"{gloo['test_accuracy']:.4f}, {switchml['test_accuracy']:.4f}"
        panel.set_title(f"{model}, {workers} workers\ntest accuracy: {accuracies}", fontsize=9)
        panel.legend(fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel("step")
    for row in panels:
        row[0].set_ylabel("training loss")
    figure.savefig(path, dpi=80)


def main() -> int:
    """Run all trainings, print a table and draw the losses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--models", nargs="+", default=["convolutional", "transformer"])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--output-dir", type=Path, default=Path("digits"), help="for JSON and PNG (default %(default)s)"
    )
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)

    control = str(Path(sysconfig.get_path("scripts")) / "switchml-ctl")
    results: dict[tuple[str, int], dict[str, dict]] = {}
    wrong = []
    with tempfile.TemporaryDirectory(prefix="swml-") as run_dir:
        environment = {**os.environ, "SWITCHML_RUN_DIR": run_dir, "OMP_NUM_THREADS": "1"}
        subprocess.run([control, "up"], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            for model in options.models:
                for workers in options.workers:
                    runs = {run: train(run, model, workers, options, environment) for run in RUNS}
                    results[model, workers] = runs
                    wrong += judge(*runs.values())
        finally:
            subprocess.run([control, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)
    draw(options.output_dir / "loss.png", results)
    print(f"{'model':14} {'workers':>7} {'gloo':>8} {'switchml':>9}  sha256 of the parameters, all ranks, both runs")
    for (model, workers), runs in results.items():
        accuracies = f"{runs['gloo']['test_accuracy']:8.4f} {runs['switchml']['test_accuracy']:9.4f}"
        hashes = {h[:16] for run in RUNS[1:] for h in runs[run]["parameters_sha256"]}
        print(f"{model:14} {workers:7} {accuracies}  {' '.join(sorted(hashes))}")
    for line in wrong:
        print(f"torch_digits_compare: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
