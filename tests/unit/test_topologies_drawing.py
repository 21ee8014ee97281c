"""Topologies as text and as pictures."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from switchml.common.errors import DrawingError
from switchml.common.installation import install_command
from switchml.dataplane.targets import BMV2
from switchml.topologies.drawing import picture, text
from switchml.topologies.topology import racks, single_switch


def test_text_has_every_node_on_its_port() -> None:
    assert text(single_switch(2, BMV2)) == (
        "single-switch: 2 hosts, links of MTU 9000\n"
        "\n"
        "s1  bmv2  10.0.0.254  02:00:00:00:00:fe\n"
        "├─ port 1 ── h1  10.0.0.1/24  02:00:00:00:00:01\n"
        "└─ port 2 ── h2  10.0.0.2/24  02:00:00:00:00:02"
    )


def test_text_of_a_tree() -> None:
    assert text(racks(2, 3)) == (
        "racks: 3 hosts, links of MTU 9000\n"
        "\n"
        "spine  soft  10.0.0.254  02:00:00:00:00:fe\n"
        "├─ port 1 ── port 2 of leaf1  soft  10.0.1.1  02:00:00:00:01:01\n"
        "│  └─ port 1 ── h1  10.0.0.1/24  02:00:00:00:00:01\n"
        "└─ port 2 ── port 3 of leaf2  soft  10.0.1.2  02:00:00:00:01:02\n"
        "   ├─ port 1 ── h2  10.0.0.2/24  02:00:00:00:00:02\n"
        "   └─ port 2 ── h3  10.0.0.3/24  02:00:00:00:00:03"
    )


def test_picture_of_a_tree(tmp_path: Path) -> None:
    path = tmp_path / "topology.svg"
    picture(racks(3, 8), path)
    drawn = path.read_text(encoding="utf-8")
    for name in ("spine (soft)", "leaf1 (soft)", "leaf3 (soft)", "h8"):
        assert name in drawn


def test_text_is_aligned() -> None:
    lines = text(single_switch(64)).splitlines()[3:]
    assert len(lines) == 64
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize("hosts", [1, 8, 64])
def test_a_picture_names_every_node(hosts: int, tmp_path: Path) -> None:
    path = tmp_path / "topology.svg"
    picture(single_switch(hosts), path)
    # matplotlib draws letters as paths and leaves each text in a comment.
    drawn = path.read_text(encoding="utf-8")
    ElementTree.fromstring(drawn)
    for host in single_switch(hosts).hosts:
        assert f"<!-- {host.name}\n" in drawn or f"<!-- {host.name} -->" in drawn
    assert "s1 (soft)" in drawn


def test_a_bitmap(tmp_path: Path) -> None:
    path = tmp_path / "topology.png"
    picture(single_switch(4), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DrawingError, match=r"must end in \.png or \.svg"):
        picture(single_switch(4), tmp_path / "topology.gif")


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DrawingError, match="cannot be written: No such file"):
        picture(single_switch(4), tmp_path / "none" / "topology.png")


def test_without_matplotlib_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DrawingError, match=re.escape(install_command("bench"))):
        picture(single_switch(4), tmp_path / "topology.png")
