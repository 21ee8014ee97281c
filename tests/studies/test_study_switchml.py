"""The study of SwitchML: small simulated all-reduces, and exact arithmetic; options, rows, table and plots."""

import dataclasses
import math
from pathlib import Path

import pytest

from studies.command import durations
from studies.switchml import simulation
from studies.switchml.network import SECOND, Network, SimulatedClock, SimulatedPacket
from studies.switchml.sender import RoundTrip, Sender, Window, WrongSum
from studies.switchml.simulation import tree_text, trees
from studies.switchml.switch import Counts, SimulatedSwitch
from studies.switchml.tree import all_reduce, ring
from switchml.benchmarks import plots, report, results
from switchml.common.progress import Progress

pytest.importorskip("simpy")

MICROSECOND = SECOND // 10**6
NETWORK = Network(
    bits_per_second=100 * 10**9,
    values=256,
    pool=64,
    switch_delay=MICROSECOND,
    host_delay=2 * MICROSECOND,
    host_packet=50_000,
)
TREES = [(1, 4), (4,), (8,), (2, 4), (3, 1), (2, 2, 2), (2, 2, 2, 2)]


def test_bytes_of_a_packet() -> None:
    # Preamble 8, Ethernet 14, IPv4 20, UDP 8, SwitchML 32, values 1024, frame check sequence 4, gap 12.
    assert NETWORK.packet_bytes == 1122
    assert NETWORK.wire == 89_760  # at 80 ps per byte
    # Four times a packet on a link, a switch of each level on the way up, and on the way down all but the root again.
    assert NETWORK.round_trip(2) == 4 * 89_760 + 3_000_000 + 2 * (2_000_000 + 50_000)


@pytest.mark.parametrize("ranks", [1, 4, 16, 64])
@pytest.mark.parametrize("positions", [1, 2, 64, 65, 200])
def test_the_time_of_one_switch_that_the_link_limits(ranks: int, positions: int) -> None:
    network = dataclasses.replace(NETWORK, pool=256)  # more than a round trip's worth of packets
    assert network.pool * network.wire > network.round_trip(1)
    outcome = all_reduce(network, (ranks,), positions)
    assert outcome.time == network.round_trip(1) + (positions - 1) * network.wire


@pytest.mark.parametrize("positions", [1, 8, 9, 20, 24, 25])
def test_the_time_of_one_switch_that_the_pool_limits(positions: int) -> None:
    network = dataclasses.replace(NETWORK, pool=8)
    rounds, rest = divmod(positions - 1, network.pool)
    outcome = all_reduce(network, (4,), positions)
    assert outcome.time == (rounds + 1) * network.round_trip(1) + rest * network.wire


def test_hosts_may_be_slower_than_links() -> None:
    network = dataclasses.replace(NETWORK, pool=256, host_packet=200_000)
    outcome = all_reduce(network, (4,), 300)
    assert outcome.time == network.round_trip(1) + 299 * 200_000


@pytest.mark.parametrize("tree", TREES, ids=tree_text)
def test_packets_without_losses(tree: tuple[int, ...]) -> None:
    """Each switch has a packet of each child in each position, and passes on one."""
    positions, switches = 150, 1
    outcome = all_reduce(dataclasses.replace(NETWORK, pool=256), tree, positions)
    assert outcome.time == NETWORK.round_trip(len(tree)) + (positions - 1) * NETWORK.wire
    assert outcome.sent == math.prod(tree) * positions
    assert (outcome.retransmissions, outcome.fast_retransmissions, outcome.timeouts, outcome.lost) == (0, 0, 0, 0)
    for level, (children, counts) in enumerate(zip(tree, outcome.counts, strict=True)):
        expected = Counts(aggregated=switches * (children - 1) * positions)
        if level == 0:
            expected.completed = positions
        else:
            expected.forwarded = expected.taken = switches * positions
        assert counts == expected
        switches *= children


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("loss", [0.01, 0.2])
@pytest.mark.parametrize("tree", TREES, ids=tree_text)
def test_losses_on_every_link_are_recovered(tree: tuple[int, ...], loss: float, seed: int) -> None:
    """Every rank compares every sum; a wrong one, or one that never comes, ends the simulation with an error."""
    outcome = all_reduce(NETWORK, tree, 300, loss=loss, seed=seed)
    assert outcome.lost > 0
    assert outcome.retransmissions + outcome.fast_retransmissions == outcome.sent - 300 * math.prod(tree) > 0
    assert outcome.counts[0].completed == 300


def test_a_seed_gives_the_same_losses() -> None:
    first, again, other = (all_reduce(NETWORK, (2, 4), 200, loss=0.02, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_late_rank_delays_all_and_is_no_loss() -> None:
    late = 10 * SECOND // 1000
    outcome = all_reduce(NETWORK, (4,), 300, late=late)
    assert late < outcome.time < late + 2 * all_reduce(NETWORK, (4,), 300).time
    assert outcome.timeouts > 0
    assert outcome.counts[0].duplicate == outcome.retransmissions > 0


def packet(child: int, position: int, total: int, *, retransmission: bool = False) -> SimulatedPacket:
    return SimulatedPacket(child, position, total, child, retransmission)


class Wire:
    """Takes the place of a link, and keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[SimulatedPacket] = []

    def send(self, sent: SimulatedPacket) -> None:
        self.sent.append(sent)


def leaf() -> tuple[SimulatedSwitch, Wire, Wire]:
    """Return a leaf with two ranks, its link up, and the link to rank 0."""
    switch, up, down = SimulatedSwitch(2, pool=4), Wire(), Wire()
    switch.index = 5
    switch.up, switch.down = up, [down, Wire()]  # type: ignore[assignment, list-item]
    return switch, up, down


def test_a_leaf_forwards_its_sum_and_takes_the_parents() -> None:
    switch, up, down = leaf()
    switch.contribution(packet(0, 3, 10))
    assert not up.sent
    switch.contribution(packet(1, 3, 20))
    assert up.sent == [SimulatedPacket(5, 3, 30, 1, False)]
    switch.contribution(packet(0, 3, 10, retransmission=True))
    assert up.sent[1:] == [SimulatedPacket(5, 3, 30, 0, True)]  # the parent may have lost the first one
    switch.result(SimulatedPacket(5, 3, 100, 7, True))
    assert down.sent == [SimulatedPacket(5, 3, 100, 7, True)]
    switch.result(SimulatedPacket(5, 3, 100, 7, True))
    switch.contribution(packet(0, 3, 10, retransmission=True))
    assert down.sent[1:] == [SimulatedPacket(0, 3, 100, 0, True)]  # the parent's sum
    assert switch.counts == Counts(aggregated=1, forwarded=2, taken=1, dropped=1, resent=1)


def test_a_leaf_drops_results_that_it_does_not_wait_for() -> None:
    switch, up, down = leaf()
    switch.result(SimulatedPacket(5, 3, 100, 7, False))  # not contributed yet
    switch.contribution(packet(0, 3, 10))
    switch.result(SimulatedPacket(5, 3, 100, 7, False))  # a rank is missing
    switch.contribution(packet(1, 3, 20))
    switch.result(SimulatedPacket(5, 11, 100, 7, False))  # two phases later, the same half
    switch.contribution(packet(0, 11, 1))
    switch.contribution(packet(1, 3, 20, retransmission=True))
    assert (switch.counts.dropped, switch.counts.stale) == (3, 1)
    assert (len(up.sent), down.sent) == (1, [])


def test_a_wrong_sum_is_an_error() -> None:
    clock = SimulatedClock()
    sender = Sender(clock, 0, 2, 1, 4, 1000, clock.stop)
    sender.up = Wire()  # type: ignore[assignment]
    sender.start()
    with pytest.raises(WrongSum, match="rank 0 got 4 in position 0"):
        sender.result(packet(1, 0, 4))


def test_the_window_shrinks_by_own_losses_only() -> None:
    window = Window(256)
    for index in range(256):
        window.result(lost=index < 16)
    assert window.size == 256  # one in sixteen is tolerated
    for index in range(256):
        window.result(lost=index < 17)
    assert window.size == 128
    for _ in range(128):
        window.result(lost=False)
    assert window.size == 144


def test_timeouts_double_up_to_a_limit() -> None:
    round_trip, millisecond = RoundTrip(10 * MICROSECOND), SECOND // 1000
    assert [round_trip.timeout(timeouts) for timeouts in (0, 1, 2, 30)] == [
        *(factor * (10 * MICROSECOND + millisecond) for factor in (1, 2, 4)),
        200 * millisecond,
    ]
    round_trip.adapt_margin(spurious=True)
    assert round_trip.timeout(0) == 10 * MICROSECOND + 2 * millisecond


def test_a_ring_sends_each_part_twice() -> None:
    network = dataclasses.replace(NETWORK, host_packet=0)
    steps, packets = 2 * 3, 10
    assert ring(network, 4, 4 * packets * 256) == steps * (network.round_trip(1) + (packets - 1) * network.wire)


# ---- options, rows, table, plots ------------------------------------------------------------------------------------


def test_trees_as_text() -> None:
    assert trees("4, 16x64,4x4x64") == [(4,), (16, 64), (4, 4, 64)]
    assert tree_text((16, 64)) == "16x64"
    for text, why in {
        "65": "1 to 64 children",
        "4x": "not a tree",
        "0x4": "not a tree",
        "1": "has 1 ranks",
        "64x64x2": "8192 ranks; a job has 2 to 4096",
        "2x2x2x2x2": "5 levels",
    }.items():
        with pytest.raises(ValueError, match=why):
            trees(text)


def test_durations_as_text() -> None:
    assert durations("0,85ns,1.5us,1ms,2s") == pytest.approx([0, 85e-9, 1.5e-6, 1e-3, 2])
    for text in ("5", "-1ms", "1 h", "11s"):
        with pytest.raises(ValueError, match=r"not a duration|above 10s"):
            durations(text)


@pytest.fixture(scope="module")
def simulated() -> results.BenchmarkResult:
    chosen = simulation.SimulationOptions(
        trees=[(2,), (2, 2)],
        bytes=100 * 1024,
        values=256,
        pool=64,
        rate=100 * 10**9,
        switch_delay=1e-6,
        host_delay=2e-6,
        host_packet=5e-8,
        losses=[0.0, 0.05],
        late=[0.0, 0.001],
        seeds=3,
    )
    return simulation.run(chosen, lambda line: None, Progress())


def test_rows(simulated: results.BenchmarkResult) -> None:
    cases = [(row["tree"], row["loss"], row["late"]) for row in simulated.rows]
    assert cases == [(tree, *case) for tree in ("2", "2x2") for case in ((0, 0), (0.05, 0), (0, 0.001))]
    assert len(simulated.samples) == 2 * (1 + 3 + 1)
    plain, lossy, late = simulated.rows[3:]
    # The pool has 64 slots: the first 64 packets take a round trip, and the other 36 follow their results.
    assert plain["seconds"] == pytest.approx((2 * NETWORK.round_trip(2) + 35 * NETWORK.wire) / SECOND, rel=1e-12)
    assert (plain["ranks"], plain["packets"], plain["forwarded"], plain["sent_again"]) == (4, 100, 100, 0)
    assert lossy["ratio"] > 1
    assert lossy["forwarded"] > 100
    assert late["seconds"] < 0.001
    assert late["sent_again"] > 0


def test_table(simulated: results.BenchmarkResult) -> None:
    [table] = report.tables(simulated)
    cells = dict(zip(table.columns, table.rows[3], strict=True))
    assert (cells["tree"], cells["ranks"], cells["lost"], cells["at the root of each child"]) == (
        "2x2",
        "4",
        "0 %",
        "100",
    )
    assert table.remarks[0] == "Simulated, not measured: switch delay 1 us, host delay 2 us, host packet 0.05 us."


def test_results_are_stored_and_drawn(simulated: results.BenchmarkResult, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "simulate.json"
    results.save(simulated, file)
    drawn = plots.draw(results.load(file, report.TABLES), tmp_path)
    names = ("scale", "loss", "late")
    assert {path.name for path in drawn} == {f"switchml-{name}.{kind}" for name in names for kind in ("png", "svg")}
