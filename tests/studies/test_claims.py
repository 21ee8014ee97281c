"""The claims of papers and the findings of studies: the files, and the pages and pictures that are made of them."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import click
import pytest

from studies import claims
from studies.__main__ import studies
from studies.claims import StudyClaims
from studies.command import StudyCommand

ROOT = Path(__file__).parents[2]
STUDIES = claims.load()
PICTURES = ROOT / "docs" / "results" / "claims"


def test_every_study_has_claims() -> None:
    commands = {name for name, command in studies.commands.items() if isinstance(command, StudyCommand)}
    assert {study.study for study in STUDIES} == commands


def test_the_generated_pages_agree_with_the_claims() -> None:
    stale = [str(path) for path, text in claims.generate().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, f"run `python -m tools.generate claims`: {', '.join(stale)}"


def test_every_claim_with_points_has_a_small_picture() -> None:
    drawn = {f"{study.study}-{claim.name}.svg" for study in STUDIES for claim in study.claims if claim.plot}
    assert {file.name for file in PICTURES.iterdir()} == drawn, (
        "run `python -m studies claims --plots docs/results/claims`"
    )
    assert all(file.stat().st_size < 60_000 for file in PICTURES.iterdir())


def test_pictures_show_the_points_of_the_claims() -> None:
    for study in STUDIES:
        for claim in study.claims:
            if claim.plot:
                text = (PICTURES / f"{study.study}-{claim.name}.svg").read_text(encoding="utf-8")
                points = html.escape(claims.points_of(claim.plot), quote=False)
                assert points in text, f"{study.study}: draw {claim.name} again"


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.study)
def test_the_command_of_a_study_can_be_parsed(study: StudyClaims) -> None:
    words = shlex.split(study.command.removeprefix("sudo "))
    assert words[:3] == ["python", "-m", "studies"]
    command = studies.commands[words[3]]
    assert isinstance(command, click.Command)
    command.make_context(words[3], words[4:])


def broken(text: str, tmp_path: Path) -> str:
    folder = tmp_path / "wrong"
    folder.mkdir()
    (folder / "claims.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(str(folder))) as raised:
        claims.load(tmp_path)
    return str(raised.value)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ('name = "a"\nsays = "s"\nhere = "h"\nverdict = "true"\npublished = "p"', "the verdict is one of"),
        ('name = "a"\nsays = "s"\nhere = "h"\nverdict = "in shape"\npublished = "p"', "why the figures differ"),
        ('name = "a"\nsays = "s"\nhere = "h"\nverdict = "not here"\npublished = "p"', "what this machine cannot show"),
        ('name = "a"\nsays = "s"\nhere = "h"\nverdict = "reproduced"', "a published figure"),
        ('name = "a"\nsays = "s"\nhere = "h"\nverdict = "reproduced"\nsaid = "p"', "'said' is not a key of Claim"),
        ('name = "a"\nsays = "s"', "missing"),
    ],
)
def test_a_wrong_file_is_refused_by_name(claim: str, message: str, tmp_path: Path) -> None:
    assert message in broken(f'paper = "P"\ncommand = "c"\n[[claims]]\n{claim}\n', tmp_path)


def test_a_claim_without_a_name_of_its_own_is_refused(tmp_path: Path) -> None:
    claim = '[[claims]]\nname = "a"\nsays = "s"\nhere = "h"\nverdict = "own question"\n'
    assert "two of one name" in broken(f'command = "c"\n{claim}{claim}', tmp_path)
