"""The statements of docs/pytorch.md about the code."""

from pathlib import Path

from switchml.torch.paths import table

DOCUMENT = Path(__file__).parents[2] / "docs" / "pytorch.md"


def test_the_table_of_paths_is_the_codes() -> None:
    assert table() in DOCUMENT.read_text(encoding="utf-8")
