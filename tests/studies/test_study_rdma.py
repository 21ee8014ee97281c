"""The study of RDMA: the ceilings are those of its page."""

from pathlib import Path

from click.testing import CliRunner

from studies.__main__ import studies


def test_the_ceilings_are_those_of_the_page() -> None:
    shown = CliRunner().invoke(studies, ["rdma", "--markdown"])
    assert shown.exit_code == 0
    rows = [line for line in shown.stdout.splitlines() if line.startswith("| ")]
    page = (Path(__file__).parents[2] / "studies" / "rdma" / "README.md").read_text(encoding="utf-8")
    assert len(rows) == 11
    assert "\n".join(rows[1:]) in page
