"""The model of the pipeline is strict and follows Tofino's architecture; tested with small hand-written programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ptf_tests.tofino_emulator.generate_headers import hash_value, internet_checksum
from ptf_tests.tofino_emulator.pipeline import Pipeline
from ptf_tests.tofino_emulator.program import state_of
from ptf_tests.tofino_emulator.state import Entry, MulticastGroup, MulticastNode, Port, State
from ptf_tests.tofino_emulator.undefined import ModelError, Undefined

HERE = [0, 7]  # a place in the source
FRAME = bytes.fromhex("0102030405060708")
INTRINSIC = {"pad": 7, "ingress_port": 9, "time": 48}
EGRESS = {"egress_port": 9, "egress_rid": 16, "egress_rid_first": 1, "pkt_length": 16, "pad": 6}


def program(control: list[Any], **parts: Any) -> dict[str, Any]:
    """Return a program whose parser takes the header ``h`` of two bytes, a and b, and whose egress does nothing."""
    start = {"body": [["extract", "ig_intr_md", HERE], ["advance", 64, HERE], ["extract", "h", HERE]], "next": "accept"}
    ingress: dict[str, Any] = {
        "parser_name": "P",
        "padding": [],
        "headers": {"h": {"a": 8, "b": 8}, "other": {"c": 8}, "ig_intr_md": INTRINSIC},
        "variables": {
            "md.x": 32,
            "md.y": 4,
            "md.s": -8,
            "ig_dprsr_md.drop_ctl": 3,
            "ig_prsr_md.parser_err": 16,
            **{f"ig_tm_md.{name}": 16 for name in ("ucast_egress_port", "mcast_grp_a", "mcast_grp_b", "rid")},
            **{f"ig_tm_md.{name}": 16 for name in ("level1_exclusion_id", "level2_exclusion_id", "bypass_egress")},
        },
        **{part: {} for part in ("value_sets", "externs", "actions", "tables")},
        "states": {"start": start},
        "control": control,
        "deparser": [["emit", "h", HERE], ["emit", "other", HERE]],
    }
    ingress["variables"].update(parts.pop("variables", {}))
    egress: dict[str, Any] = {
        "parser_name": "E",
        "padding": [],
        "headers": {"eg_intr_md": EGRESS},
        "variables": {},
        **{part: {} for part in ("value_sets", "externs", "actions", "tables")},
        "states": {"start": {"body": [["extract", "eg_intr_md", HERE]], "next": "accept"}},
        "control": [],
        "deparser": [],
    }
    egress.update(parts.pop("egress", {}))
    ingress.update(parts)
    return {"format": 1, "files": ["tna/example.p4"], "ingress": ingress, "egress": egress}


def run(compiled: dict[str, Any], state: State | None = None, frame: bytes = FRAME) -> list[tuple[int, bytes]]:
    """Send one frame through port 1; return what comes out."""
    out: list[tuple[int, bytes]] = []
    pipeline = Pipeline(compiled, state_of(compiled) if state is None else state, lambda *sent: out.append(sent))
    pipeline.receive(1, frame)
    return out


def assign(name: str, value: Any) -> list[Any]:
    return ["=", name, value, HERE]


SEND = assign("ig_tm_md.ucast_egress_port", 5)
STOP = ["validate", "h", False, HERE]


# ---- what must not be read or written --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (["if", ["==", "md.x", 1], [STOP], [], HERE], "md.x is read"),
        (["if", ["==", "other.c", 1], [STOP], [], HERE], "other.c is read"),
        (["if", ["==", ["+", 32, "md.x", 1], 1], [STOP], [], HERE], "md.x is read"),
        (assign("other.c", 1), "other.c is written"),
    ],
)
def test_undefined_values_are_found_with_their_place(statement: list[Any], words: str) -> None:
    with pytest.raises(ModelError, match=f"^tna/example.p4:7: {words}"):
        run(program([statement, SEND]))


def test_a_header_that_is_emitted_must_be_filled() -> None:
    with pytest.raises(ModelError, match=r"other\.c is read"):
        run(program([["validate", "other", True, HERE], SEND]))


def test_an_undefined_value_may_be_copied() -> None:
    assert run(program([assign("md.s", "md.x"), SEND])) == [(5, FRAME)]


def test_a_header_that_was_invalid_has_forgotten_its_fields() -> None:
    control = [["validate", "h", False, HERE], ["validate", "h", True, HERE], assign("h.a", 1), SEND]
    with pytest.raises(ModelError, match=r"h\.b is read"):
        run(program(control))


def test_undefined_is_good_for_nothing_but_values_that_are_undefined() -> None:
    value = Undefined("x")
    assert ((value ^ 1) << 2) + (3 - value) is value
    assert (value == 0) is value
    for use in (lambda: bool(value), lambda: [0][value], lambda: value.to_bytes(1), lambda: max(1, value)):
        with pytest.raises(ModelError, match="x is read"):
            use()


def test_what_is_set_on_an_undefined_condition_is_undefined() -> None:
    mark = ["if", ["==", "md.x", 1], [assign("md.y", 1)], [assign("h.a", 7)], HERE]
    use = ["if", ["==", "md.y", 1], [SEND, STOP], [], HERE]
    assert run(program([assign("md.x", 1), mark, use])) == [(5, FRAME[2:])]
    with pytest.raises(ModelError, match=r"md\.x is read"):
        run(program([assign("md.y", 0), mark, use]))
    with pytest.raises(ModelError, match=r"md\.x is read"):
        run(program([mark, SEND]))  # the frame holds h.a


def test_a_short_frame_is_dropped_unless_the_program_looks_at_the_error() -> None:
    assert run(program([SEND]), frame=b"\x01") == []
    control = [["if", ["!=", "ig_prsr_md.parser_err", 0], [SEND], [], HERE]]
    assert run(program(control), frame=b"\x01") == [(5, b"\x01")]
    assert run(program(control)) == []


# ---- registers and counters ------------------------------------------------------------------------------------------

REGISTER = {"kind": "Register", "name": "C.r", "size": 4, "fields": {"": 32}, "initial": [0]}
ACTION = {
    "kind": "RegisterAction",
    "name": "C.add",
    "register": "r",
    "values": ["add.v"],
    "result": "add.rv",
    "width": 32,
    "body": [assign("add.v", ["+", 32, "add.v", "h.a"]), assign("add.rv", "add.v")],
}
EXTERNS = {
    "r": REGISTER,
    "add": ACTION,
    "k": {"kind": "Counter", "name": "C.k", "size": 4, "type": "PACKETS_AND_BYTES"},
}
VARIABLES = {"add.v": 32, "add.rv": 32}


def with_externs(*control: list[Any]) -> dict[str, Any]:
    return program([*control, SEND], externs=EXTERNS, variables=VARIABLES)


def test_a_register_action_reads_and_writes() -> None:
    compiled = with_externs(assign("md.x", ["execute", "add", 2]), assign("h.a", ["slice", "md.x", 7, 0]))
    state = state_of(compiled)
    run(compiled, state)
    assert run(compiled, state) == [(5, b"\x02" + FRAME[1:])]
    assert state.registers["pipe.C.r"] == [0, 0, 2, 0]


def test_a_register_takes_no_undefined_value() -> None:
    compiled = with_externs(["validate", "h", False, HERE], assign("md.x", ["execute", "add", 2]))
    with pytest.raises(ModelError, match=r"h\.a is read"):
        run(compiled)


def test_a_register_is_accessed_once_in_a_pass() -> None:
    execute = assign("md.x", ["execute", "add", 2])
    with pytest.raises(ModelError, match=r"7: C\.r is accessed twice"):
        run(with_externs(execute, execute))


@pytest.mark.parametrize(
    "statement", [assign("md.x", ["execute", "add", 4]), ["count", "k", 4, 0, HERE], ["count", "k", "md.x", 0, HERE]]
)
def test_an_index_is_inside(statement: list[Any]) -> None:
    with pytest.raises(ModelError, match=r"has 4 entries, the index is 4|md\.x is read"):
        run(with_externs(statement))


def test_counters_count_packets_and_bytes() -> None:
    compiled = with_externs(["count", "k", "h.a", 3, HERE])
    state = state_of(compiled)
    run(compiled, state)
    assert state.counters["pipe.C.k"] == [[0, 0], [1, len(FRAME) - 3], [0, 0], [0, 0]]


def test_the_predicate_tells_which_comparisons_hold() -> None:
    for low in (False, True):
        for high in (False, True):
            control = [
                assign("h.b", ["predicate", ["==", "h.a", 1 if low else 9], ["<", "h.a", 9 if high else 1]]),
                SEND,
            ]
            ((_, frame),) = run(program(control))
            assert frame[1] == 1 << (low + 2 * high)


# ---- tables ----------------------------------------------------------------------------------------------------------


def with_table(*keys: list[Any], entries: Any = None) -> dict[str, Any]:
    """Return a program whose table sets h.b to an entry's number, or to 99 on a miss."""
    actions = {
        "set": {"name": "C.set", "parameters": [["set.n", "n"]], "body": [assign("h.b", "set.n")]},
        "miss": {"name": "C.miss", "parameters": [], "body": [assign("h.b", 99)]},
    }
    table = {"name": "C.t", "keys": list(keys), "entries": entries, "counter": None, "size": 8}
    table.update(actions=["set", "miss"], default=["miss", []])
    tables = {"t": table}
    return program([["apply", "t", HERE], SEND], actions=actions, tables=tables, variables={"set.n": 8})


def found(compiled: dict[str, Any], *entries: Entry, default: Entry | None = None) -> int:
    state = state_of(compiled)
    for entry in entries:
        state.match_tables["pipe.C.t"].put(entry)
    if default is not None:
        state.match_tables["pipe.C.t"].set_default(default)
    ((_, frame),) = run(compiled, state)
    return frame[1]


def entry(number: int, priority: int = 0, **key: Any) -> Entry:
    return Entry(key, "C.set", {"n": number}, priority)


A, B = ["h.a", "ternary", "a", 8], ["h.b", "range", "b", 8]  # 1 and 2 in the frame


def test_the_highest_priority_wins() -> None:
    compiled = with_table(A, B)
    assert found(compiled) == 99
    assert found(compiled, entry(5, 2, a=(1, 0xFF), b=(0, 255)), entry(6, 1, a=(0, 0), b=(2, 2))) == 6
    assert found(compiled, entry(5, 2, a=(1, 0xFF)), entry(6, 1, b=(3, 9))) == 5
    assert found(compiled, entry(5, 0, a=(2, 0xFF)), default=entry(7)) == 7


def test_the_longest_prefix_wins() -> None:
    compiled = with_table(["h.a", "lpm", "a", 8])
    assert found(compiled, entry(5, a=(0, 0)), entry(6, a=(1, 8)), entry(7, a=(0, 4))) == 6
    assert found(compiled, entry(5, a=(0, 0)), entry(6, a=(3, 8)), entry(7, a=(0, 4))) == 7


def test_exact_keys_and_const_entries() -> None:
    assert found(with_table(["h.a", "exact", "a", 8]), entry(5, a=1)) == 5
    entries = [[[["mask", 3, 2]], "set", [4]], [[["range", 0, 9]], "set", [5]], [[None], "set", [6]]]
    assert found(with_table(A, entries=entries)) == 5


def test_a_table_that_changes_is_asked_anew() -> None:
    compiled = with_table(A)
    state, out = state_of(compiled), []
    pipeline = Pipeline(compiled, state, lambda *sent: out.append(sent))
    table = state.match_tables["pipe.C.t"]
    changes: list[Callable[[], object]] = [lambda: None, lambda: table.put(entry(5, a=(1, 255))), table.clear]
    for change in changes:
        change()
        pipeline.receive(1, FRAME)
    assert [frame[1] for _, frame in out] == [99, 5, 99]


def test_an_undefined_key_matters_only_where_the_match_depends_on_it() -> None:
    entries = [[[9, None], "set", [1]], [[1, None], "set", [2]], [[None, 7], "set", [3]]]
    assert found(with_table(A, ["md.x", "ternary", "x", 32], entries=entries)) == 2
    with pytest.raises(ModelError, match=r"7: the entry of C\.t that matches depends on md\.x"):
        found(with_table(A, ["md.x", "ternary", "x", 32], entries=entries[2:]))


def test_what_an_undefined_match_sets_is_undefined() -> None:
    compiled = with_table(A, ["md.x", "ternary", "x", 32], entries=[[[None, 7], "set", [3]]])
    for action in compiled["ingress"]["actions"].values():
        action["body"][0][1] = "md.x"  # a variable, whereas the table above sets a header's field
    assert run(compiled) == [(5, FRAME)]
    compiled["ingress"]["control"].append(["if", ["==", "md.x", 1], [STOP], [], HERE])
    with pytest.raises(ModelError, match=r"md\.x is read"):
        run(compiled)


def test_an_entry_with_an_action_of_another_table_is_refused() -> None:
    with pytest.raises(ModelError, match=r"unknown action C\.gone"):
        found(with_table(A), Entry({"a": (1, 255)}, "C.gone"))


# ---- the traffic manager ---------------------------------------------------------------------------------------------


def groups(state: State) -> State:
    """Add group 3: port 2 as rid 20, ports 4 and 6 as rid 40, excluded for 9."""
    state.nodes.update({1: MulticastNode(20, [2]), 2: MulticastNode(40, [4, 6])})
    state.groups[3] = MulticastGroup([1, 2], [False, True], [0, 9])
    return state


@pytest.mark.parametrize(("exclusion", "ports"), [(None, [2, 4, 6]), (8, [2, 4, 6]), (9, [2])])
def test_multicast_replicates_and_prunes(exclusion: int | None, ports: list[int]) -> None:
    control = [assign("ig_tm_md.mcast_grp_a", 3)]
    if exclusion is not None:
        control.append(assign("ig_tm_md.level1_exclusion_id", exclusion))
    header = {"headers": {"eg_intr_md": EGRESS, "rid": {"value": 16}}}
    egress = {
        **header,
        "control": [["validate", "rid", True, HERE], assign("rid.value", "eg_intr_md.egress_rid")],
        "deparser": [["emit", "rid", HERE]],
    }
    compiled = program(control, egress=egress)
    rids = {2: 20, 4: 40, 6: 40}
    expected = [(port, rids[port].to_bytes(2, "big") + FRAME) for port in ports]
    assert run(compiled, groups(state_of(compiled))) == expected


def test_a_packet_with_nowhere_to_go_is_dropped() -> None:
    assert run(program([])) == []
    assert run(program([assign("ig_tm_md.mcast_grp_a", 77)])) == []
    assert run(program([SEND, assign("ig_dprsr_md.drop_ctl", 1)])) == []


def test_recirculation_comes_back_through_its_port() -> None:
    again = ["==", "ig_intr_md.ingress_port", 68]
    control = [["if", again, [SEND], [assign("ig_tm_md.ucast_egress_port", 68), assign("h.a", 9)], HERE]]
    assert run(program(control)) == [(5, b"\x09" + FRAME[1:])]
    compiled = program([assign("ig_tm_md.ucast_egress_port", 12)])
    state = state_of(compiled)
    state.ports[12] = Port({"$LOOPBACK_MODE": "BF_LPBK_MAC_NEAR"})
    with pytest.raises(ModelError, match="still recirculates"):
        run(compiled, state)


# ---- arithmetic ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (["+", 8, "h.a", 255], 0),
        (["-", 8, "h.a", 2], 255),
        (["|+|", 8, "h.a", 255], 255),
        (["|-|", 8, "h.a", 2], 0),
        (["~", 8, "h.a"], 254),
        (["neg", 8, "h.a"], 255),
        (["++", ["slice", "h.a", 3, 0], 4, ["slice", "h.b", 3, 0]], 0x12),
        (["cast", -8, 8, ["cast", 8, -8, 200]], 200),
        (["mux", ["<", ["cast", 8, -8, 200], 0], 1, 2], 1),
        (["cast", 0, 1, ["and", ["valid", "h"], ["not", ["valid", "other"]]]], 1),
        (["max", "h.a", "h.b"], 2),
    ],
)
def test_expressions(expression: Any, value: int) -> None:
    ((_, frame),) = run(program([assign("h.b", expression), SEND]))
    assert frame[1] == value


def test_checksums_and_hashes() -> None:
    assert internet_checksum([(0x4500, 16), (0xFFFF, 16)]) == 0xBAFF
    assert internet_checksum([(0xFFFF, 16)], zeros_as_ones=True) == 0xFFFF
    assert hash_value("IDENTITY", 4, [(0xA, 4), (0x5, 4)]) == 5
    assert hash_value("CRC32", 32, [(0x31, 8)]) == 0x83DCEFB7
    with pytest.raises(ModelError, match="16"):
        internet_checksum([(1, 8)])
