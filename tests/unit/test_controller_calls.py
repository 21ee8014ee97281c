from switchml.controller.jobs.verdict import judge
from switchml.controller.proto import switchml_pb2 as pb

USUAL = pb.Call(sequence=5, operation="all_reduce", dtype="float32", elements=100)
OTHER = pb.Call(sequence=5, operation="all_reduce", dtype="float32", elements=200)
NEXT = pb.Call(sequence=6, operation="all_reduce", dtype="float32", elements=200)
BROADCAST = pb.Call(sequence=5, operation="broadcast", dtype="int32", elements=7, root=2)
SLOTS = range(64, 128)


def test_equal_calls_mean_changed_bits() -> None:
    judgement = judge({0: USUAL, 1: USUAL}, [], {0: 71, 1: 71}, SLOTS)
    assert (judgement.reason, judgement.ranks) == (pb.REVOCATION_REASON_INTEGRITY, [])
    where = "on ranks 0, 1 in call 5, all_reduce of 100 float32, at chunk 71 in slot 71: bits were changed"
    assert where in judgement.message


def test_sums_and_averages_are_different_calls() -> None:
    total, average = (
        pb.Call(sequence=5, operation="all_reduce", op=op, dtype="float32", elements=100) for op in ("sum", "avg")
    )
    judgement = judge({0: total, 1: average}, [], {0: 71, 1: 71}, SLOTS)
    assert judgement.reason == pb.REVOCATION_REASON_CALL_MISMATCH
    assert "rank 1: call 5, all_reduce (avg) of 100 float32" in judgement.message


def test_each_place_is_named() -> None:
    message = judge(dict.fromkeys(range(3), USUAL), [], {0: 7, 1: 9, 2: 7}, SLOTS).message
    assert (
        "on ranks 0, 2 in call 5, all_reduce of 100 float32, at chunk 7 in slot 71 and on rank 1 in call 5" in message
    )
    assert "at chunk 9 in slot 73: bits" in message


def test_bits_that_changed_in_another_call_at_each_rank() -> None:
    judgement = judge({0: USUAL, 1: NEXT}, [], {0: 70, 1: 72}, SLOTS)
    assert judgement.reason == pb.REVOCATION_REASON_INTEGRITY
    assert judge({0: USUAL, 1: NEXT}, [], {0: 70, 1: 70}, SLOTS).reason == pb.REVOCATION_REASON_CALL_MISMATCH
    assert judge({0: USUAL, 1: OTHER}, [], {0: 70, 1: 71}, SLOTS).reason == pb.REVOCATION_REASON_CALL_MISMATCH


def test_one_report_alone_means_changed_bits() -> None:
    assert judge({3: USUAL}, [0, 1, 2], {3: 7}, SLOTS).reason == pb.REVOCATION_REASON_INTEGRITY


def test_the_rank_that_differs_is_named() -> None:
    judgement = judge({0: USUAL, 1: USUAL, 2: OTHER}, [3], dict.fromkeys(range(3), 7), SLOTS)
    assert (judgement.reason, judgement.ranks) == (pb.REVOCATION_REASON_CALL_MISMATCH, [2])
    assert "ranks 0, 1: call 5, all_reduce of 100 float32" in judgement.message
    assert "rank 2: call 5, all_reduce of 200 float32" in judgement.message
    assert "rank 3: not reported" in judgement.message


def test_without_a_majority_all_are_named() -> None:
    judgement = judge({0: USUAL, 1: BROADCAST}, [], {0: 7, 1: 7}, SLOTS)
    assert judgement.ranks == [0, 1]
    assert "rank 1: call 5, broadcast of 7 int32 from rank 2" in judgement.message
