"""A study as a command: like one of `switchml-ctl bench`, with a short form and its own tables and plots."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from switchml.benchmarks import options, plots, report
from switchml.benchmarks.errors import MissingPeer
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.torch_ranks import torch_version
from switchml.commands import bench_parameters as parameters
from switchml.commands.bench import BenchCommand, Figures
from switchml.common.errors import NamespaceError
from switchml.topologies.namespaces import require_privileges
from switchml.topologies.shaped_links import require_shaping

__all__ = ["DURATION", "Headline", "StudyCommand", "durations", "one_queue", "one_rate", "study"]

Headline = Callable[[BenchmarkResult], str]
"""Return the figure of a result that its claim is about, in a few words."""

_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_DURATION: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(ns|us|ms|s)")
_LONGEST_DURATION: Final = 10.0


class StudyCommand(BenchCommand):
    """The command of a study.

    Attributes:
        headline: the figure of a result.

    """

    def __init__(
        self, *arguments: Any, short: str, headline: Headline, needs: Sequence[str] = (), **options: Any
    ) -> None:
        """`short` has the options for which --short stands; `needs` are "root", "torch", or modules of Python."""
        super().__init__(*arguments, **options)
        self.headline = headline
        self._short = short
        self._needs = needs
        text = f"Take two minutes at most: the default is then {short}."
        self.params.append(click.Option(["--short"], is_flag=True, expose_value=False, help=text))

    @property
    def takes_torch(self) -> bool:
        """True if it has the option --torch-python."""
        return any(parameter.name == "torch_python" for parameter in self.params)

    def missing(self, torch_python: str) -> str:
        """Return what this machine lacks to run it; "" if nothing."""
        try:
            if "root" in self._needs:
                require_privileges()
                require_shaping()
            if "torch" in self._needs:
                torch_version(torch_python, "torch")
        except (NamespaceError, MissingPeer) as error:
            return str(error)
        modules = [need for need in self._needs if need not in ("root", "torch")]
        absent = [module for module in modules if importlib.util.find_spec(module) is None]
        return f"{', '.join(absent)} cannot be imported: pip install --editable '.[studies]'" if absent else ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, after those of the short form."""
        return super().parse_args(ctx, [*shlex.split(self._short), *args] if "--short" in args else args)

    def invoke(self, context: click.Context) -> Figures | None:
        """Run the study. Its ranks find it in any interpreter, but no other folder of the checkout."""
        with tempfile.TemporaryDirectory(prefix="swml-studies-") as modules:
            Path(modules, "studies").symlink_to(Path(__file__).parent, target_is_directory=True)
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [modules, os.environ.get("PYTHONPATH")]))
            return super().invoke(context)


def study(
    name: str,
    tables: report.ReportTables,
    figures: plots.Plots,
    *,
    short: str,
    headline: Headline,
    needs: Sequence[str] = (),
    **attributes: Any,
) -> Callable[[Callable[..., Any]], StudyCommand]:
    """Return the decorator of a study's command (StudyCommand), whose result has these tables and plots."""
    report.TABLES[name] = tables
    plots.FIGURES[name] = figures
    example = f"\b\nExample:\n  python -m studies {name} --short"
    return click.command(name, StudyCommand, short=short, headline=headline, needs=needs, epilog=example, **attributes)


def durations(text: str) -> list[float]:
    """Return the seconds of "0,85ns,1ms". Raises ValueError for one above ten seconds."""

    def duration(word: str) -> float:
        match = _DURATION.fullmatch(word)
        if match is None and word != "0":
            raise ValueError(f"{word!r} is not a duration; write 85ns, 12us, 1ms or 0")
        value = float(match[1]) * _SECONDS[match[2]] if match else 0.0
        if value > _LONGEST_DURATION:
            raise ValueError(f"{word} is above 10s")
        return value

    return options.each(text, duration)


DURATION: Final = parameters.one("duration", durations)


def one_rate(default: str) -> Callable[[parameters.F], parameters.F]:
    """Return the decorator of `--link` with one rate."""
    kind = parameters.one("rate", options.rates)
    return parameters.option("--link", "rate", kind=kind, default=default, metavar="RATE", help_text="Rate of links.")


def one_queue(default: str) -> Callable[[parameters.F], parameters.F]:
    """Return the decorator of `--queue` with one length."""
    kind, text = parameters.one("queue", options.queues), "Length of the links' queues."
    return parameters.option("--queue", kind=kind, default=default, metavar="TIME", help_text=text)
