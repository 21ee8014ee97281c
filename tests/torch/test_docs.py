"""The statements of docs/guides/pytorch.md about the code."""

from pathlib import Path

from switchml.torch.paths import long_sums_table, table

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "pytorch.md"


def test_the_table_of_paths_is_the_codes() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert table() in text
    assert long_sums_table() in text
