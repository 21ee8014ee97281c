"""One class name has one meaning in the product: no two modules define a class of the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("cli.py", "controller", "dataplane", "docker", "host_agent", "native", "studies", "switchml", "topologies")
SAME_MEANING = {
    "JobEnded",  # the error of a job that is over, in the controller and in the library
}


def modules(root: Path) -> list[Path]:
    """Return the product's modules under `root` without the generated ones, each once though `switchml` has links."""
    found = (path for name in PRODUCT for path in [root / name, *(root / name).rglob("*.py")])
    files = {path.resolve() for path in found if path.suffix == ".py"}
    return sorted(path for path in files if not path.stem.endswith(("_pb2", "_pb2_grpc")))


def duplicates(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Return the public names of classes that are defined more than once, each with the places of the definitions."""
    places = defaultdict(list)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path}:{node.lineno}")
    return {name: found for name, found in places.items() if len(found) > 1}


def unwanted(paths: Iterable[Path]) -> list[str]:
    """Return a line for each name with several meanings."""
    found = sorted(duplicates(paths).items())
    return [f"{name}: {', '.join(places)}" for name, places in found if name not in SAME_MEANING]


def test_no_class_name_has_two_meanings() -> None:
    found = unwanted(modules(ROOT))
    assert not found, "rename all but one of each of these classes:\n" + "\n".join(found)


def test_every_allowed_name_is_defined_twice() -> None:
    assert duplicates(modules(ROOT)).keys() >= SAME_MEANING


@pytest.mark.parametrize("name", ["Session", "JobEnded"])
def test_a_second_class_is_found_with_both_places(name: str, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(f"class {name}: ...\nclass _Private: ...\n")
    (tmp_path / "two.py").write_text(f"class _Private: ...\nif True:\n    class {name}: ...\n")
    places = f"{name}: {tmp_path / 'one.py'}:1, {tmp_path / 'two.py'}:3"
    assert unwanted(sorted(tmp_path.iterdir())) == ([] if name in SAME_MEANING else [places])
