"""Train on handwritten digits with eight workers and print a summary of the results; `make demo` runs this."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

WORKERS = 8


def summary(job: dict, training: dict) -> str:
    """Return the accuracy, the parameters, the switch's counters and the rate, one line each."""
    switch = job["switch"]
    dropped = ", ".join(f"{reason} {count:,}" for reason, count in switch["dropped"].items()) or "none"
    counters = ", ".join(f"{name} {switch[name]:,}" for name in ("contributions", "results", "resent"))
    refused = ", ".join(f"{name.replace('_', ' ')} {switch[name]:,}" for name in ("duplicate", "stale", "wrong_epoch"))
    hashes = set(training["parameters_sha256"])
    same = "bit-identical" if len(hashes) == 1 else "DIFFERENT"
    median = 1000 * training["allreduce_seconds_median"]
    return f"""\
accuracy      {training["test_accuracy"]:.4f} with {training["workers"]} workers through the switch, \
{training["reference_accuracy"]:.4f} in one process
parameters    {same} on all {training["workers"]} workers, sha256 {" ".join(sorted(hashes))}
switch        {counters}, {refused}
dropped       {dropped}
speed         {training["elements_per_second"]:,.0f} elements/s, {median:.2f} ms an all-reduce (median), \
{training["steps"]} steps in {training["seconds"]:.1f} s
results       {job["run_dir"]}/training.json and training.png"""


def main() -> int:
    """Run the training as a job and print the summary; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", required=True, help="run directory of the embedded fabric")
    options = parser.parse_args()
    example = Path(__file__).with_name("train_digits.py")
    command = ["switchml-ctl", "--run-dir", options.run_dir, "job", "start", "--workers", str(WORKERS), "--json"]
    # Ranks on one machine would add up their values themselves; here the switch shows what it does.
    environment = os.environ | {"SWITCHML_DIRECT": "0"}
    result = subprocess.run(
        [*command, "--", "python", str(example)], stdout=subprocess.PIPE, check=False, env=environment
    )
    if result.returncode != 0:
        print(f"demo: the job ended with status {result.returncode}", file=sys.stderr)
        return result.returncode
    job = json.loads(result.stdout)
    training = json.loads((Path(job["run_dir"]) / "training.json").read_text(encoding="utf-8"))
    print(summary(job, training))
    return 0


if __name__ == "__main__":
    sys.exit(main())
