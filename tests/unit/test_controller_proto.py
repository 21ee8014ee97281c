import pytest

pytest.importorskip("grpc_tools")

from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from tools.generate.protos import CONTROLLER, generate


def test_generated_files_are_fresh() -> None:
    made = generate(CONTROLLER)
    kinds = ("pb2.py", "pb2.pyi", "pb2_grpc.py")
    assert {path.name for path in made} == {f"{name}_{kind}" for name in ("switchml", "events") for kind in kinds}
    stale = [path.name for path, text in made.items() if path.read_text() != text]
    assert not stale, "run python -m tools.generate protos"


def test_values_read_as_words() -> None:
    assert enum_word(pb.JobState, pb.JOB_STATE_READY) == "READY"
    assert enum_word(pb.RevocationReason, pb.REVOCATION_REASON_JOB_FAILED) == "JOB_FAILED"
    assert enum_word(pb.RankEvent.Kind, pb.RankEvent.KIND_CHECK_FAILED) == "CHECK_FAILED"
    assert enum_word(pb.OnFailure, 77) == "77"  # of a later version
