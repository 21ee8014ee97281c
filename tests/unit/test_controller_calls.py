from controller.calls import judge
from controller.proto import switchml_pb2 as pb

USUAL = pb.Call(sequence=5, operation="all_reduce", dtype="float32", elements=100)
OTHER = pb.Call(sequence=5, operation="all_reduce", dtype="float32", elements=200)
BROADCAST = pb.Call(sequence=5, operation="broadcast", dtype="int32", elements=7, root=2)


def test_equal_calls_mean_changed_bits():
    judgement = judge({0: USUAL, 1: USUAL}, [], {0: "chunk 7 in slot 71", 1: "chunk 7 in slot 71"})
    assert (judgement.reason, judgement.ranks) == (pb.INTEGRITY, [])
    assert "in call 5, all_reduce of 100 float32, on ranks 0, 1 at chunk 7 in slot 71: bits" in judgement.message


def test_ranks_that_saw_it_at_several_places():
    places = {0: "chunk 7 in slot 71", 1: "chunk 9 in slot 73", 2: "chunk 7 in slot 71"}
    message = judge(dict.fromkeys(range(3), USUAL), [], places).message
    assert "on ranks 0, 2 at chunk 7 in slot 71 and on rank 1 at chunk 9 in slot 73" in message


def test_one_report_alone_means_changed_bits():
    assert judge({3: USUAL}, [0, 1, 2], {3: "chunk 7 in slot 71"}).reason == pb.INTEGRITY


def test_the_rank_that_differs_is_named():
    judgement = judge({0: USUAL, 1: USUAL, 2: OTHER}, [3], {})
    assert (judgement.reason, judgement.ranks) == (pb.CALL_MISMATCH, [2])
    assert "ranks 0, 1: call 5, all_reduce of 100 float32" in judgement.message
    assert "rank 2: call 5, all_reduce of 200 float32" in judgement.message
    assert "rank 3: not reported" in judgement.message


def test_without_a_majority_all_are_named():
    judgement = judge({0: USUAL, 1: BROADCAST}, [], {})
    assert judgement.ranks == [0, 1]
    assert "rank 1: call 5, broadcast of 7 int32 from rank 2" in judgement.message
