import pytest

pytest.importorskip("grpc_tools")

from switchml.controller.proto.generate import generate


def test_generated_files_are_fresh():
    made = generate()
    kinds = ("pb2.py", "pb2.pyi", "pb2_grpc.py")
    assert {path.name for path in made} == {f"{name}_{kind}" for name in ("switchml", "events") for kind in kinds}
    stale = [path.name for path, text in made.items() if path.read_text() != text]
    assert not stale, "run python -m switchml.controller.proto.generate"
