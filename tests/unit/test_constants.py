"""The generated constants are those of constants.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.generate.constants import SOURCE, generate

GENERATED = generate()


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_file_is_fresh(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == GENERATED[path], (
        f"{path} is stale: run python -m tools.generate constants"
    )


def test_change_reaches_every_language(tmp_path: Path) -> None:
    source = SOURCE.read_text(encoding="utf-8")
    changed = tmp_path / "constants.toml"
    changed.write_text(source.replace("no_route = 17", "no_route = 27"), encoding="utf-8")
    for path, text in generate(changed).items():
        assert text != GENERATED[path], f"{path} does not hold drop reasons"


@pytest.mark.parametrize("value", ["-1", "0x1_0000_0000", "1.5", "true", '"1"'])
def test_member_that_does_not_fit_is_refused(tmp_path: Path, value: str) -> None:
    source = tmp_path / "constants.toml"
    source.write_text(f"[kind]\nresult = {value}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"\[kind\] result"):
        generate(source)


def test_equal_members_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "constants.toml"
    source.write_text("[verdict]\nstale = 5\nresent = 5\n", encoding="utf-8")
    with pytest.raises(ValueError, match="same value"):
        generate(source)
