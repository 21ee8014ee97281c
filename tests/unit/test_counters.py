"""The files generated from counters.toml are up to date, and the protocol has the counters of the controller."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from switchml.common.counter_table import PATH, PROCESS, RANK, THREAD
from switchml.common.counters import Counter, by_heading, headings, read_counters
from switchml.controller.proto import switchml_pb2 as pb
from tools.generate.counters import SOURCE, generate

GENERATED = generate()
TABLE = SOURCE.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_file_is_fresh(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == GENERATED[path], (
        f"{path} is stale: run python -m tools.generate counters"
    )


def changed(tmp_path: Path, group: str, line: str) -> dict[Path, str]:
    source = tmp_path / "counters.toml"
    source.write_text(TABLE.replace(f"\n[{group}]\n", f"\n[{group}]\n{line}\n"), encoding="utf-8")
    return generate(source)


@pytest.mark.parametrize(("group", "base"), [("rank", "Rank"), ("path", "Path"), ("link", "Link"), ("port", "Port")])
def test_a_line_is_all_that_a_new_counter_takes(group: str, base: str, tmp_path: Path) -> None:
    line = 'parrots = { unit = "packets", help = "parrots seen", metric = "switchml_parrots_total", top = "parrots/s" }'
    header, table, document = changed(tmp_path, group, line).values()
    assert "uint64_t parrots = 0;" in header
    assert "parrots += other.parrots;" in header
    assert f'make("parrots", &{base}::parrots, "parrots seen")' in header
    assert 'metric_help="Parrots seen."' in table
    assert "| `switchml_parrots_total` |" in document


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('x = { help = "it" }', "needs a help and a unit"),
        ('x = { unit = "packets" }', "needs a help and a unit"),
        ('x = { unit = "miles", help = "it" }', "needs a help and a unit"),
        ('x = { unit = "nanoseconds", help = "it" }', "only nanoseconds end in _ns"),
        ('x_ns = { unit = "packets", help = "it" }', "only nanoseconds end in _ns"),
        ('x = { unit = "durations", help = "it" }', "durations have a total"),
        ('x = { unit = "packets", help = "it", total = "sent" }', "durations have a total"),
        ('x = { unit = "durations", help = "it", total = "y_ns" }', "has no counter y_ns"),
        ('x = { unit = "packets", help = "it", botom = "x" }', "botom is unknown"),
        ('x = { unit = "packets", help = "it", metric = "a-b" }', "not a metric"),
        ('x = { unit = "packets", help = "it", metric = \'x_total{a="b"}\' }', "if .metrics. explains it"),
        (
            'x = { unit = "packets", help = "it", metric = "switchml_rank_retransmitted_packets_total" }',
            "if .metrics. explains it",
        ),
        (
            'x = { unit = "packets", help = "it", metric = "switchml_rank_ignored_packets_total" }',
            "two counters have the metric",
        ),
    ],
)
def test_a_line_that_cannot_be_is_refused(line: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        changed(tmp_path, "rank", line)


@pytest.mark.parametrize(
    ("message", "counters", "others"),
    [
        (pb.RankCounters.DESCRIPTOR, RANK, {"round_trip_seconds"}),
        (
            pb.RankProfile.DESCRIPTOR,
            (*THREAD, *PROCESS, *PATH),
            {"rank", "agent", "counters", "latest", "taken_at_ns", "attached"},
        ),
        (
            pb.CallProfile.DESCRIPTOR,
            THREAD,
            {"sequence", "operation", "dtype", "bytes", "submitted_ns", "begun_ns", "answered_ns", "ended_ns"},
        ),
    ],
    ids=["RankCounters", "RankProfile", "CallProfile"],
)
def test_the_protocol_has_the_counters(message: Descriptor, counters: tuple[Counter, ...], others: set[str]) -> None:
    found = dict(message.fields_by_name)
    assert found.keys() == others | {counter.name for counter in counters}, (
        f"the message {message.name} of switchml.proto and counters.toml have other counters"
    )
    for counter in counters:
        assert found[counter.name].type == FieldDescriptor.TYPE_UINT64, counter.name
        assert found[counter.name].is_repeated == counter.is_histogram, counter.name


def test_a_column_is_the_sum_of_its_counters() -> None:
    counters = (
        Counter("sent", "packets", "sent", headings={"ranks": "sent", "top": "packets/s"}),
        Counter("ignored", "packets", "ignored"),
        Counter("retransmissions", "packets", "after a timeout", headings={"ranks": "retransmitted"}),
        Counter("fast_retransmissions", "packets", "before it", headings={"ranks": "retransmitted"}),
    )
    values = read_counters(counters, pb.RankCounters(sent=9, ignored=1, retransmissions=2, fast_retransmissions=3))
    assert headings("ranks", counters) == ["sent", "retransmitted"]
    assert by_heading("ranks", counters, values) == {"sent": 9, "retransmitted": 5}
    assert by_heading("top", counters, values) == {"packets/s": 9}
    assert by_heading("profile", counters, values) == {}


def test_durations_are_shown_in_seconds() -> None:
    (wait,) = (counter for counter in THREAD if counter.name == "wait_ns")
    assert (wait.quantity, wait.in_units(2_500_000_000)) == ("wait", 2.5)
    (sent,) = (counter for counter in RANK if counter.name == "sent")
    assert (sent.quantity, sent.in_units(7)) == ("sent", 7)
