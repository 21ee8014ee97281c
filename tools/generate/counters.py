"""The structs, the table and the documentation of the counters of switchml/common/counters.toml."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from switchml.common.counters import Counter
from tools.generate import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["SOURCE", "generate"]

SOURCE: Final = ROOT / "switchml" / "common" / "counters.toml"
_DOCUMENT: Final = ROOT / "docs" / "reference" / "metrics.md"
_NOTICE: Final = "Generated from switchml/common/counters.toml by tools/generate; do not edit."
_UNITS: Final = ("packets", "frames", "bytes", "calls", "times", "nanoseconds", "durations")
_VIEWS: Final = ("ranks", "top", "profile")
_METRIC: Final = re.compile(r'([a-z_]+)(?:\{([a-z_]+)="([a-z_]+)"\})?')

_Groups = dict[str, list[Counter]]


def _read(source: Path) -> tuple[dict[str, Any], _Groups]:
    """Return the descriptions of the groups, and their counters.

    Raises:
        ValueError: a line of the table is not complete, or contradicts another one.

    """
    table: dict[str, dict[str, Any]] = tomllib.loads(source.read_text(encoding="utf-8"))
    groups, metrics = table.pop("groups"), table.pop("metrics")
    if list(groups) != list(table):
        raise ValueError(f"{source}: [groups] and the tables of counters are not the same, in one order")
    found = {
        group: [_counter(f"{source}: [{group}] {name}", name, dict(line), metrics) for name, line in lines.items()]
        for group, lines in table.items()
    }
    exported = [(counter.metric, *counter.labels.items()) for group in found.values() for counter in group]
    for metric in {metric for metric in exported if metric[0] and exported.count(metric) > 1}:
        raise ValueError(f"{source}: two counters have the metric {metric}")
    for group, counters in found.items():
        missing = {counter.total for counter in counters if counter.total} - {counter.name for counter in counters}
        if missing:
            raise ValueError(f"{source}: [{group}] has no counter {', '.join(missing)}")
    return groups, found


def _counter(place: str, name: str, line: dict[str, Any], metrics: dict[str, str]) -> Counter:
    unit, described = line.pop("unit", None), line.pop("help", "")
    if unit not in _UNITS or (unit == "nanoseconds") != name.endswith("_ns") or not described:
        raise ValueError(f"{place}: it needs a help and a unit, and only nanoseconds end in _ns")
    total, exported = line.pop("total", ""), line.pop("metric", "")
    if bool(total) != (unit == "durations"):
        raise ValueError(f"{place}: durations have a total, and only they")
    if unknown := line.keys() - set(_VIEWS):
        raise ValueError(f"{place}: {', '.join(sorted(unknown))} is unknown")
    parsed = _METRIC.fullmatch(exported)
    if exported and parsed is None:
        raise ValueError(f"{place}: {exported} is not a metric with at most one label")
    metric, label, value = parsed.groups("") if parsed is not None else ("", "", "")
    if bool(label) != (metric in metrics):
        raise ValueError(f"{place}: a metric has a label if [metrics] explains it, and only then")
    explained = _sentence(metrics.get(metric, described)) if metric else ""
    return Counter(name, unit, described, metric, explained, {label: value} if label else {}, total, line)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


# ---- C++ -------------------------------------------------------------------------------------------------------------


def _cpp(groups: dict[str, Any], counters: _Groups) -> str:
    lines = [f"// {_NOTICE}", "#pragma once", ""]
    lines += ["#include <cstdint>", "#include <tuple>", "", '#include "native/runtime/durations.h"', ""]
    lines += ["namespace switchml::counters {", ""]
    for group, members in counters.items():
        lines += _struct(group.title(), groups[group]["about"], members)
    return _clang_format("\n".join([*lines, "}  // namespace switchml::counters", ""]))


def _struct(name: str, about: str, counters: Sequence[Counter]) -> Iterator[str]:
    yield from (f"// {_sentence(about)}", f"struct {name} {{")
    for counter in counters:
        yield f"{'runtime::DurationCounts' if counter.is_histogram else 'uint64_t'} {counter.name}{_start(counter)};"
    yield from ("", f"void add(const {name}& other) {{")
    for counter in counters:
        if counter.is_histogram:
            yield f"runtime::add_counts(&{counter.name}, other.{counter.name});"
        else:
            yield f"{counter.name} += other.{counter.name};"
    yield from ("}", "", "// Returns a tuple of make(name, member, help) for each of them.")
    yield from ("template <class Make>", "static constexpr auto fields(Make make) {")
    made = (f'make("{counter.name}", &{name}::{counter.name}, "{counter.help}")' for counter in counters)
    yield from (f"return std::make_tuple({', '.join(made)});", "}", "};", "")


def _start(counter: Counter) -> str:
    return "{}" if counter.is_histogram else " = 0"


def _clang_format(text: str) -> str:
    return _run("clang-format", f"--style=file:{ROOT / '.clang-format'}", text=text)


# ---- Python ----------------------------------------------------------------------------------------------------------


def _python(groups: dict[str, Any], counters: _Groups) -> str:
    lines = [f"# {_NOTICE}", '"""The counters of the native code, by what they count."""', ""]
    lines += ["from typing import Final", "", "from switchml.common.counters import Counter", ""]
    for group, members in counters.items():
        lines.append(f"{group.upper()}: Final = (")
        for counter in members:
            defaults = Counter("", "", "")
            given = {key: value for key, value in vars(counter).items() if value != getattr(defaults, key)}
            arguments = ", ".join(f"{key}={value!r}" for key, value in given.items())
            lines.append(f"Counter({arguments}),")
        lines += [")", f'"""{_sentence(groups[group]["about"])}"""', ""]
    return _run("ruff", "format", "--isolated", "--line-length=120", "-", text="\n".join(lines))


def _run(tool: str, *arguments: str, text: str) -> str:
    command = (str(Path(sysconfig.get_path("scripts"), tool)), *arguments)
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, input=text, capture_output=True, text=True, check=True
    )
    return done.stdout


# ---- the documentation -----------------------------------------------------------------------------------------------


def _documented(groups: dict[str, Any], counters: _Groups, page: str) -> str:
    """Return the page with the tables of the groups that its comments name."""

    def table(found: re.Match[str]) -> str:
        named = found[2].split(", ")
        rows = _rows(groups[named[0]]["labels"], [counter for group in named for counter in counters[group]])
        return "\n".join((found[1], "", "| name | labels | |", "|---|---|---|", *rows, "", found[3]))

    return re.sub(r"(<!-- counters: ([a-z, ]+) -->)\n.*?(<!-- end of the counters -->)", table, page, flags=re.DOTALL)


def _rows(labels: Sequence[str], counters: Sequence[Counter]) -> Iterator[str]:
    for metric in dict.fromkeys(counter.metric for counter in counters if counter.metric):
        alike = [counter for counter in counters if counter.metric == metric]
        names = ", ".join(f"`{label}`" for label in (*labels, *alike[0].labels)) or "none"
        described = alike[0].metric_help.removesuffix(".") + (" (histogram)" if alike[0].is_histogram else "")
        values = "; ".join(f"`{value}` ({each.help})" for each in alike for value in each.labels.values())
        yield f"| `{metric}` | {names} | {described}{f': {values}' if values else ''} |"


def generate(source: Path = SOURCE) -> dict[Path, str]:
    """Return the text of every generated file by its path.

    Raises:
        ValueError: a line of the table is not complete, or contradicts another one.

    """
    groups, counters = _read(source)
    return {
        ROOT / "native" / "counters" / "counters.h": _cpp(groups, counters),
        SOURCE.with_name("counter_table.py"): _python(groups, counters),
        _DOCUMENT: _documented(groups, counters, _DOCUMENT.read_text(encoding="utf-8")),
    }
