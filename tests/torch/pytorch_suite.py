"""Run PyTorch's own tests of a backend with switchml on CPU, and list which pass, fail or are skipped, with reasons.

    python -m tests.torch.pytorch_suite [--select PATTERN] [--backend gloo] [--output FILE]

torch ships the tests in torch.testing._internal.distributed.distributed_test. They are told that they test Gloo, so
that those for PyTorch's Gloo backend run as well, but the groups are made with the requested backend. Ranks are forked
from a process that has torch loaded. The exit status is 1 if a test fails that is not in EXPECTED_FAILURES, or if one
of these passes.
"""

import argparse
import fnmatch
import json
import logging
import multiprocessing
import os
import sys
import tempfile
import time
import unittest
from collections import Counter
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any

WORLD_SIZE = 4  # the number that most tests need
BACKEND_VARIABLE = "SWITCHML_SUITE_BACKEND"
SECONDS = 60  # for one test; PyTorch's own default is 300

os.environ["BACKEND"] = "gloo"  # read at import, to choose the tests
os.environ["WORLD_SIZE"] = str(WORLD_SIZE)
os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(SECONDS)

import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

# These tests compare the group's backend with the name that they were given.
TOLD_THE_NAME = ("test_backend_full_group", "test_backend_group", "test_get_backend")
_BY_NAME = "torch.distributed.monitored_barrier refuses every group whose backend is not called gloo"
EXPECTED_FAILURES = {
    "test_monitored_barrier_failure_order": _BY_NAME,
    "test_monitored_barrier_gloo": _BY_NAME,
    "test_monitored_barrier_gloo_subgroup": _BY_NAME,
    "test_monitored_barrier_wait_all_ranks": _BY_NAME,
}


class BackendTest(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """All of PyTorch's tests of one backend."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(forked)


# Only for MPI, from the time when no other CPU backend had all-to-all.
for _name in dir(BackendTest):
    if _name.startswith("test_all_to_all") and "cuda" not in _name:
        getattr(BackendTest, _name).__unittest_skip__ = False


Args = tuple[Any, ...]
ExcInfo = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


def forked(target: Callable[..., None], name: str, args: Args, kwargs: dict[str, Any]) -> BaseProcess:
    """Return a fork server that has torch loaded, with this process's environment."""
    arguments = (dict(os.environ), target, args, kwargs)
    return multiprocessing.get_context("forkserver").Process(target=in_environment, name=name, args=arguments)


def in_environment(
    environment: dict[str, str], target: Callable[..., None], args: Args, kwargs: dict[str, Any]
) -> None:
    # Tests of sub-groups demand eight ranks unless the backend is MPI, but four are enough.
    os.environ.update(environment | {"BACKEND": "mpi"})
    backend = os.environ[BACKEND_VARIABLE]
    if args[1] in TOLD_THE_NAME:
        distributed_test.BACKEND = backend
    initialize = dist.init_process_group

    def init_process_group(*arguments: object, **options: object) -> None:
        if options.get("backend") == "gloo":
            options["backend"] = backend
        initialize(*arguments, **options)

    dist.init_process_group = init_process_group
    target(*args, **kwargs)


class Results(unittest.TestResult):
    """The outcome of each test, and the reasons of those that did not pass."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, tuple[str, str]] = {}
        self.seconds: dict[str, float] = {}

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        super().startTest(test)
        self._began = time.monotonic()

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().stopTest(test)
        name = test._testMethodName
        outcome, why = self.outcomes.setdefault(name, ("passed", ""))
        self.seconds[name] = time.monotonic() - self._began
        print(
            f"{outcome:8} {self.seconds[name]:5.1f} s  {name}  {why.splitlines()[-1][:200] if why else ''}", flush=True
        )

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self.outcomes[test._testMethodName] = ("skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: ExcInfo) -> None:  # noqa: N802
        super().addFailure(test, err)
        self.outcomes[test._testMethodName] = ("failed", self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: ExcInfo) -> None:  # noqa: N802
        super().addError(test, err)
        self.outcomes[test._testMethodName] = ("failed", self.errors[-1][1])


def report(results: Results, backend: str) -> list[str]:
    """Print the counts; return the unexpected outcomes."""
    counts = Counter(outcome for outcome, _ in results.outcomes.values())
    print(f"\n{backend}: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped")))
    reasons = Counter(why for outcome, why in results.outcomes.values() if outcome == "skipped")
    for reason, count in reasons.most_common():
        print(f"  skipped {count:3}: {reason}")
    wrong = []
    for name, (outcome, _) in results.outcomes.items():
        expected = EXPECTED_FAILURES.get(name) if backend == "switchml" else None
        if outcome == "failed":
            print(f"  failed: {name}: {expected or 'not expected'}")
        if (outcome == "failed") != (expected is not None):
            wrong.append(name)
    return wrong


def main() -> int:
    """Run the tests on a separate fabric."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("switchml", "gloo"), default="switchml")
    parser.add_argument("--select", default="*", help="only tests whose name matches, as in a shell")
    parser.add_argument("--output", type=Path, help="file for the outcomes (JSON)")
    options = parser.parse_args()
    from tests.support.fabric_harness import Ctl
    from tests.torch import pytorch_suite  # this file again, under the name by which the ranks find it

    os.environ[BACKEND_VARIABLE] = options.backend
    os.environ["OMP_NUM_THREADS"] = "1"
    logging.getLogger("torch.testing._internal.common_distributed").setLevel(logging.CRITICAL)
    multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.torch.pytorch_suite"])
    names = unittest.TestLoader().getTestCaseNames(pytorch_suite.BackendTest)
    suite = unittest.TestSuite(pytorch_suite.BackendTest(n) for n in names if fnmatch.fnmatch(n, options.select))
    results = Results()
    with tempfile.TemporaryDirectory(prefix="swml-") as directory:
        control = Ctl(Path(directory) / "run")
        os.environ["SWITCHML_RUN_DIR"] = str(control.run_dir)
        control.run("up")
        try:
            suite.run(results)
        finally:
            control.run("down")
    if options.output:
        options.output.write_text(json.dumps(results.outcomes, indent=1) + "\n", encoding="utf-8")
    wrong = report(results, options.backend)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
