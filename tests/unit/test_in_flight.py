"""The record of memory that belongs to calls in flight."""

import random

import pytest

from switchml.client.in_flight import MemoryInFlight


def memory(ended: set[str]) -> MemoryInFlight[str]:
    return MemoryInFlight(lambda call: call in ended)


def test_overlapping_ranges_are_refused_until_the_call_has_ended() -> None:
    ended: set[str] = set()
    in_flight = memory(ended)
    in_flight.claim([(100, 10)], "first")
    for start, size in ((100, 10), (99, 2), (109, 1), (90, 100), (103, 2)):
        with pytest.raises(ValueError, match="has not ended"):
            in_flight.claim([(start, size)], "second")
    in_flight.claim([(90, 10), (110, 10), (105, 0)], "neighbours")
    ended.add("first")
    in_flight.claim([(103, 2)], "second")
    in_flight.release([(100, 10)], "first")  # already removed
    with pytest.raises(ValueError, match="has not ended"):
        in_flight.claim([(104, 1)], "third")


def test_a_refused_call_claims_nothing() -> None:
    in_flight = memory(set())
    in_flight.claim([(0, 10)], "first")
    with pytest.raises(ValueError, match="has not ended"):
        in_flight.claim([(20, 10), (5, 1)], "second")
    with pytest.raises(ValueError, match="has not ended"):
        in_flight.claim([(20, 10), (25, 1)], "twice the same")
    in_flight.claim([(20, 10)], "third")


def test_memory_may_be_read_by_several_calls_but_not_written_meanwhile() -> None:
    ended: set[str] = set()
    in_flight = memory(ended)
    in_flight.claim([(0, 10)], "first", [(100, 50)])
    in_flight.claim([(10, 10)], "second", [(100, 50), (20, 0)])
    in_flight.claim([(200, 10)], "in place", [(200, 50)])
    for ranges, reads in (([(149, 1)], []), ([], [(5, 1)]), ([(300, 5)], [(19, 1)]), ([(300, 5), (240, 1)], [])):
        with pytest.raises(ValueError, match="has not ended"):
            in_flight.claim(ranges, "third", reads)
    in_flight.claim([(300, 5)], "third")  # the refused calls have claimed nothing
    in_flight.release([(0, 10)], "first")
    with pytest.raises(ValueError, match="has not ended"):
        in_flight.claim([(120, 5)], "fourth")
    ended.add("second")
    in_flight.claim([(120, 5)], "fourth")


def test_like_a_set_of_addresses() -> None:
    rng = random.Random(4)
    ended: set[str] = set()
    in_flight, owners = memory(ended), dict[int, str]()
    claims: list[tuple[str, tuple[int, int]]] = []
    for number in range(3000):
        call, start, size = str(number), rng.randrange(200), rng.randrange(1, 12)
        addresses = range(start, start + size)
        if any(owners.get(address) not in (None, *ended) for address in addresses):
            with pytest.raises(ValueError, match="has not ended"):
                in_flight.claim([(start, size)], call)
        else:
            in_flight.claim([(start, size)], call)
            owners |= dict.fromkeys(addresses, call)
            claims.append((call, (start, size)))
        if claims and rng.random() < 0.6:
            call, claimed = claims.pop(rng.randrange(len(claims)))
            if rng.random() < 0.5:
                ended.add(call)
            else:
                in_flight.release([claimed], call)
                owners = {address: owner for address, owner in owners.items() if owner != call}
