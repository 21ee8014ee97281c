import pytest

from switchml.controller.admission.placement import AgentRoom, place_ranks
from switchml.controller.admission.request import next_job_id, validate
from switchml.controller.errors import InvalidRequest, NoAgent, NoRoom
from switchml.controller.proto import switchml_pb2 as pb


@pytest.mark.parametrize("workers", [1, 64])
@pytest.mark.parametrize("name", ["", "a", "A-z_0.9", "x" * 64])
@pytest.mark.parametrize("slots", [0, 2, 512, 32768])
def test_what_is_allowed(workers: int, name: str, slots: int) -> None:
    validate(pb.StartJobRequest(workers=workers, name=name, slots=slots))


@pytest.mark.parametrize(
    ("workers", "name", "slots", "words"),
    [
        (0, "", 0, "1 to 4096 workers, not 0"),
        (4097, "", 0, "1 to 4096 workers, not 4097"),
        (1, "a b", 0, "job name 'a b'"),
        (1, "x" * 65, 0, "1 to 64 of"),
        (1, "ä", 0, "job name"),
        (1, "a\n", 0, "job name"),
        (1, "2", 0, "job name '2' must be .* and more than a number"),
        (1, "007", 0, "and more than a number"),
        (1, "", 1, "power of two from 2 to 32768, not 1"),
        (1, "", 3, "not 3"),
        (1, "", 65536, "not 65536"),
    ],
)
def test_what_is_not(workers: int, name: str, slots: int, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        validate(pb.StartJobRequest(workers=workers, name=name, slots=slots))


def test_job_ids_go_round_and_rest() -> None:
    assert next_job_id(0, {}, "") == 1
    assert next_job_id(5, {6: "", 7: ""}, "") == 8
    assert next_job_id(1023, {1: ""}, "") == 2
    others = {number: f"tenant-{number}" for number in range(1, 1024)}
    with pytest.raises(NoRoom, match="all 1023 job ids are in use"):
        next_job_id(3, others, "")
    del others[3]
    assert next_job_id(3, others, "") == 3


def test_a_tenant_has_as_many_job_ids_as_it_leaves() -> None:
    used = dict.fromkeys(range(1, 512), "south")
    assert next_job_id(511, used, "south") == 512
    used[512] = "south"
    with pytest.raises(NoRoom, match="jobs of tenant south have 512 of the 1023 job ids, and the last 511 are for"):
        next_job_id(512, used, "south")
    assert next_job_id(512, used, "north") == 513


def room(**agents: tuple[int, int]) -> list[AgentRoom]:
    return [AgentRoom(name, in_use, maximum) for name, (in_use, maximum) in agents.items()]


def test_blocks_are_contiguous_and_even() -> None:
    placed = place_ranks(8, room(a=(0, 8), b=(0, 8), c=(0, 8)), "s")
    assert placed == {"a": range(3), "b": range(3, 6), "c": range(6, 8)}


def test_room_bounds_a_block_and_idle_agents_come_first() -> None:
    assert place_ranks(5, room(a=(7, 8), b=(0, 8)), "s") == {"a": range(1), "b": range(1, 5)}
    assert place_ranks(1, room(a=(2, 8), b=(0, 8)), "s") == {"b": range(1)}


def test_too_little_room_is_refused_with_figures() -> None:
    with pytest.raises(NoAgent) as caught:
        place_ranks(4, room(a=(7, 8), b=(6, 8)), "s1")
    assert caught.value.figures == {"ranks_asked": "4", "ranks_free": "3", "agents": "2"}
    with pytest.raises(NoAgent, match="the 0 live agents of switch s1 have room for 0"):
        place_ranks(1, [], "s1")
