import pytest

pytest.importorskip("grpc_tools")

from controller.proto.generate import generate


def test_generated_files_are_fresh():
    made = generate()
    assert {path.name for path in made} == {"switchml_pb2.py", "switchml_pb2.pyi", "switchml_pb2_grpc.py"}
    stale = [path.name for path, text in made.items() if path.read_text() != text]
    assert not stale, "run python -m controller.proto.generate"
