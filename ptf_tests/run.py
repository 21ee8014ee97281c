"""Start a switch, run the packet tests on it and end it: ``python -m ptf_tests.run --target NAME``."""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from ptf_tests import namespace
from ptf_tests.targets import TARGETS, Target, TargetUnavailable, veth_names

_HERE = Path(__file__).parent
_TESTS = _HERE / "tests"

_SHORT_GROUP = "values"  # the tests for which the number of values matters


def main() -> int:
    """Run the suite; return 0 if no test failed, or if the target is neither available nor required."""
    arguments = _parse()
    target_class = TARGETS[arguments.target]
    try:
        target_class.check_available()
    except TargetUnavailable as reason:
        if arguments.required:
            click.echo(f"{arguments.target}: {reason}", err=True)
            return 1
        click.echo(f"skipped: {reason}")
        return 0
    if target_class.needs_namespace:
        namespace.enter("ptf_tests.run", sys.argv[1:])
        namespace.make_veth_pairs(veth_names())
    directory = Path(tempfile.mkdtemp(prefix="switchml-ptf-"))
    status = 1
    try:
        with target_class(directory) as target:
            status = _run_suites(target, arguments.tests)
    finally:
        if status == 0:
            shutil.rmtree(directory)
        else:
            click.echo(f"{arguments.target}: logs are in {directory}", err=True)
    return status


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ptf_tests.run", description="Run the SwitchML packet tests.")
    parser.add_argument("--target", required=True, choices=sorted(TARGETS))
    parser.add_argument(
        "--tests", metavar="PATTERN", help="run only tests whose module.Class matches, as in '*.Late*' or 'test_loss.*'"
    )
    parser.add_argument(
        "--required", action="store_true", help="fail instead of skipping if the target is not available"
    )
    return parser.parse_args()


def _run_suites(target: Target, pattern: str | None) -> int:
    start = time.monotonic()
    counts = []
    skipped = 0
    for values in target.values:
        group = target.tests if values == target.values[0] else _SHORT_GROUP
        tests = [group] if pattern is None else _matching(target, values, group, pattern)
        if not tests:
            continue
        click.echo(f"==== {target.name}, {values} values per packet")
        process = _ptf(target, values, *tests)
        output = b""
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
        target.check_alive()
        if process.wait() != 0:
            return 1
        ran = re.search(rb"^Ran (\d+) tests? in", output, re.MULTILINE)
        if ran is None:
            click.echo(f"{target.name}: ptf did not report how many tests it ran", err=True)
            return 1
        skipped += int(found[1]) if (found := re.search(rb"skipped=(\d+)", output)) else 0
        counts.append((int(ran[1]), values))
    if not counts:
        click.echo(f"no test matches {pattern!r}", err=True)
        return 1
    what = ", ".join(f"{count} tests with {values} values" for count, values in counts)
    less = f"{skipped} of them skipped" if skipped else "none skipped"
    click.echo(f"{target.name}: passed {what}; none failed, {less}; {time.monotonic() - start:.1f} s")
    return 0


def _matching(target: Target, values: int, group: str, pattern: str) -> list[str]:
    process = _ptf(target, values, "--list-test-names", group)
    output, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"ptf cannot list the tests:\n{output.decode(errors='replace')}")
    return fnmatch.filter(output.decode().split("\n"), pattern)


def _ptf(target: Target, values: int, *arguments: str) -> subprocess.Popen[bytes]:
    """Start ptf, which is a script and not a module, with this interpreter."""
    script = Path(sys.executable).with_name("ptf")
    description = target.directory / f"description_{values}.json"
    target.describe(values).save(description)
    command: Sequence[str] = [
        *(sys.executable, "-W", "ignore::DeprecationWarning", str(script)),
        *("--test-dir", str(_TESTS), "--platform-dir", str(_HERE / "platforms"), "--platform", "switchml"),
        *("--platform-args", str(description), "--allow-user", "--qlen", "100000", "--socket-recv-size", "65536"),
        *("--log-file", str(target.directory / "ptf.log"), "--debug", "info"),
        *arguments,
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_HERE.parent), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)


if __name__ == "__main__":
    sys.exit(main())
