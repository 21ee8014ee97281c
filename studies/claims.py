"""The claims of papers and the findings of studies: `claims.toml` of each study, the source of all tables and pages.

`python -m tools.generate claims` writes studies/README.md, the head of each study's page and docs/results/claims.md.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FOLDER",
    "VERDICTS",
    "Claim",
    "ClaimSeries",
    "StudyClaims",
    "draw",
    "generate",
    "load",
    "points_of",
    "summary",
]

FOLDER: Final = Path(__file__).parent
VERDICTS: Final = {
    "reproduced": "the published figure, or a bound that does not depend on the machine",
    "in shape": "the same order or trend, with other magnitudes",
    "not here": "this machine cannot show it",
    "own question": "no paper has published a figure",
}
_PAGE: Final = FOLDER.parent / "docs" / "results" / "claims.md"
_PICTURES: Final = _PAGE.with_suffix("")
_TABLE: Final = FOLDER / "README.md"
_BEGIN, _END = "<!-- generated from claims.toml -->", "<!-- end of the generated text -->"
_LINE: Final = 120  # characters
_SCALES: Final = ("linear", "log")


@dataclass(frozen=True)
class ClaimSeries:
    """A line of points, or bars if x is a name; `published` are those of the paper."""

    label: str
    points: list[list[Any]]
    published: bool = False


@dataclass(frozen=True)
class Plot:
    """The axes of a picture; a scale is "linear" or "log"."""

    x: str
    y: str
    series: list[ClaimSeries]
    x_scale: str = "linear"
    y_scale: str = "linear"


@dataclass(frozen=True)
class Claim:
    """A published statement, and what was found here.

    Attributes:
        name: a word for file names, unique within the study.
        says: the statement of the paper, or the question of a study that has no paper.
        published: the published figure, for tables; empty for a question.
        here: the figure found here.
        verdict: of VERDICTS.
        differs: why the figures differ.
        unseen: what this machine cannot show.
        plot: the published points and those found here.

    """

    name: str
    says: str
    here: str
    verdict: str
    published: str = ""
    differs: str = ""
    unseen: str = ""
    plot: Plot | None = None


@dataclass(frozen=True)
class StudyClaims:
    """The claims of a study. `command` is what measures them; `paper` is empty for a study that repeats none."""

    study: str
    command: str
    claims: list[Claim]
    paper: str = ""


# ---- reading --------------------------------------------------------------------------------------------------------


def load(folder: Path = FOLDER) -> list[StudyClaims]:
    """Return the claims of all studies: those that repeat a paper first. Raises ValueError for a wrong file."""
    found = [_study(file) for file in sorted(folder.glob("*/claims.toml"))]
    return sorted(found, key=lambda study: not study.paper)


def _study(file: Path) -> StudyClaims:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        study: StudyClaims = _made(StudyClaims, table | {"study": file.parent.name})
        _check(study)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error
    return study


def _made(kind: type, table: dict[str, Any]) -> Any:
    """Return a dataclass from a table of TOML; TypeError for keys that are missing or unknown."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in hints:
            raise TypeError(f"{key!r} is not a key of {kind.__name__}")
        [inner] = [one for one in (hints[key], *get_args(hints[key])) if hasattr(one, "__dataclass_fields__")] or [None]
        if isinstance(value, str):
            value = " ".join(value.split())
        elif isinstance(value, dict) and inner is not None:
            value = _made(inner, value)
        elif inner is not None:
            value = [_made(inner, one) for one in value]
        values[key] = value
    return kind(**values)


def _check(study: StudyClaims) -> None:
    names = [claim.name for claim in study.claims]
    if not names or len(set(names)) != len(names):
        raise ValueError("it has no claim, or two of one name")
    for claim in study.claims:
        if claim.verdict not in VERDICTS:
            raise ValueError(f"{claim.name}: the verdict is one of {', '.join(VERDICTS)}")
        if (claim.verdict == "own question") == bool(study.paper) or bool(claim.published) != bool(study.paper):
            raise ValueError(f"{claim.name}: it has a published figure if the study has a paper, and only then")
        if claim.verdict == "in shape" and not claim.differs:
            raise ValueError(f"{claim.name}: it does not say why the figures differ")
        if claim.verdict == "not here" and not claim.unseen:
            raise ValueError(f"{claim.name}: it does not say what this machine cannot show")
        if claim.plot and {claim.plot.x_scale, claim.plot.y_scale} - set(_SCALES):
            raise ValueError(f"{claim.name}: a scale is {' or '.join(_SCALES)}")


# ---- tables and pages -----------------------------------------------------------------------------------------------


def generate() -> dict[Path, str]:
    """Return the text of each generated file."""
    studies = load()
    files = {_PAGE: "\n".join(_page(studies)) + "\n", _TABLE: _filled(_TABLE, summary(studies, _TABLE.parent))}
    for study in studies:
        page = FOLDER / study.study / "README.md"
        files[page] = _filled(page, "\n\n".join(_paragraphs(study.claims)))
    return files


def _filled(page: Path, text: str) -> str:
    """Return the page with a text between the two marks."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{page} lacks `{_BEGIN}` and, below, `{_END}`")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def summary(studies: Sequence[StudyClaims], directory: Path) -> str:
    """Return a table with a line for each claim, for a page in `directory`."""
    lines = ["| study | paper | published | here | verdict |", "|---|---|---|---|---|"]
    for study in studies:
        address = os.path.relpath(FOLDER / study.study / "README.md", directory)
        for claim in study.claims:
            cells = [f"[{study.study}]({address})", study.paper, claim.published, claim.here, claim.verdict]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _paragraphs(claims: Sequence[Claim]) -> Iterator[str]:
    for claim in claims:
        parts = {
            "Claim" if claim.published else "Question": claim.says,
            "Published": claim.published,
            "Here": f"{claim.here}." + ("" if claim.verdict == "own question" else f" Verdict: {claim.verdict}."),
            "Why they differ": claim.differs,
            "Not shown by this machine": claim.unseen,
        }
        for head, text in parts.items():
            if text:
                text = text[0].upper() + text[1:]
                closed = text if text.endswith((".", "?")) else f"{text}."
                yield textwrap.fill(f"**{head}.** {closed}", _LINE, break_long_words=False, break_on_hyphens=False)


def _page(studies: Sequence[StudyClaims]) -> Iterator[str]:
    """Yield the lines of the page of all claims."""
    claims = [claim for study in studies for claim in study.claims]
    yield from (
        "# Published claims",
        "",
        "<!-- Generated by tools/generate from studies/*/claims.toml; do not edit. -->",
        "",
    )
    yield "The figures that the papers around SwitchML have published, those that the"
    yield "[studies](../../studies/README.md) found, and why they differ. A verdict is one of these:"
    yield from ("", "| verdict | claims | |", "|---|---:|---|")
    for verdict, meaning in VERDICTS.items():
        yield f"| {verdict} | {sum(claim.verdict == verdict for claim in claims)} | {meaning} |"
    yield from ("", summary(studies, _PAGE.parent))
    for study in studies:
        yield from (
            "",
            f"## {study.study}",
            "",
            f"{study.paper}." if study.paper else "This study repeats no paper.",
        )
        yield from (
            "",
            "<!-- not run: tests/studies/test_claims.py parses the command -->",
            "```sh",
            study.command,
            "```",
        )
        for claim in study.claims:
            for paragraph in _paragraphs([claim]):
                yield from ("", paragraph)
            if claim.plot:
                picture = f"{_PICTURES.name}/{study.study}-{claim.name}.svg"
                yield from ("", f"![{study.study}: {claim.name}]({picture})")


# ---- pictures -------------------------------------------------------------------------------------------------------


def draw(directory: Path) -> list[Path]:
    """Draw the picture of each claim that has points; return the files."""
    import matplotlib as mpl

    files = []
    directory.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "switchml", "svg.fonttype": "none"}):
        for study in load():
            for claim in study.claims:
                if claim.plot is not None:
                    files.append(directory / f"{study.study}-{claim.name}.svg")
                    metadata = {"Date": None, "Description": points_of(claim.plot)}
                    _figure(f"{study.study}: {claim.name}", claim.plot).savefig(files[-1], metadata=metadata)
    return files


def points_of(plot: Plot) -> str:
    """Return the points of a picture as text, which the picture contains, so that a test can tell an old one."""
    return "; ".join(f"{series.label}: {json.dumps(series.points)}" for series in plot.series)


def _figure(title: str, plot: Plot) -> Figure:
    from switchml.benchmarks.plots import side_by_side

    figure, [panel] = side_by_side([title])
    if any(isinstance(x, str) for series in plot.series for x, _ in series.points):
        _bars(panel, plot.series)
    else:
        markers = itertools.cycle("x+*")
        for series in plot.series:
            xs, ys = zip(*series.points, strict=True)
            style: dict[str, Any] = {"marker": "o", "markersize": 5}
            if series.published:
                style = {"color": "black", "linestyle": ":", "marker": next(markers), "markersize": 9, "zorder": 3}
            panel.plot(xs, ys, label=series.label, **style)
        panel.set_xscale(plot.x_scale)
        ticks = sorted({x for series in plot.series for x, _ in series.points})
        panel.set_xticks(ticks, [f"{x:g}" for x in ticks], fontsize=8)
        panel.minorticks_off()
    panel.set_yscale(plot.y_scale)
    if plot.y_scale == "linear" and all(y >= 0 for series in plot.series for _, y in series.points):
        panel.set_ylim(bottom=0)
    panel.set_xlabel(plot.x)
    panel.set_ylabel(plot.y)
    panel.legend(fontsize=7)
    return figure


def _bars(panel: Any, series: Sequence[ClaimSeries]) -> None:
    """Draw the values of each name side by side; the published ones are hatched."""
    names = list(dict.fromkeys(x for one in series for x, _ in one.points))
    width = 0.8 / len(series)
    for number, one in enumerate(series):
        places = [names.index(x) - 0.4 + (number + 0.5) * width for x, _ in one.points]
        look = {"facecolor": "white", "edgecolor": "black", "hatch": "///"} if one.published else {}
        panel.bar(places, [y for _, y in one.points], width, label=one.label, **look)
    panel.set_xticks(range(len(names)), [re.sub(", ", ",\n", name) for name in names], fontsize=7)
