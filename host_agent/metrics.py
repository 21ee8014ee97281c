"""The agent's metrics: packets, round trips, and how its ranks spend their time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from switchml.common.metrics_server import Families
from switchml.common.version import VERSION
from switchml.dataplane.devices import DEVICE_TRANSPORTS

if TYPE_CHECKING:
    from switchml.host_agent._engine import Engine, LinkCounters, RankProfile, RankStatus
    from switchml.host_agent.jobs import Jobs

__all__ = ["AgentMetrics"]

_DEVICE_DROPS: Final = (
    "receive_overflow", "receive_errors", "malformed", "bad_checksum", "not_for_us", "unknown_port", "send_errors",
    "unresolved",
)  # fmt: skip


class AgentMetrics:
    """Read metrics from the agent's jobs and engine, on their event loop. `registered` returns the registration.

    Only open ranks are counted: their series end with them.
    """

    def __init__(self, engine: Engine, jobs: Jobs, name: str, transport: str, registered: Callable[[], bool]) -> None:
        self._engine = engine
        self._jobs = jobs
        self._name = name
        self._transport = transport
        self._registered = registered

    def __call__(self, families: Families) -> None:
        """Add the current values."""
        families.gauge(
            "switchml_agent_info", "Version and transport.", 1,
            agent=self._name, version=VERSION, transport=self._transport,
        )  # fmt: skip
        families.gauge(
            "switchml_agent_registered", "1 while the agent is registered with a controller.", self._registered()
        )
        open_ranks = list(self._jobs.open_ranks())
        families.gauge("switchml_agent_open_ranks", "Ranks that are open at this agent.", len(open_ranks))
        if self._transport in DEVICE_TRANSPORTS:
            _fill_device(families, self._engine.link_counters())
        for job, rank, handle in open_ranks:
            labels = {"job_name": job.name, "rank": str(rank.rank)}
            _fill_packets(families, self._engine.status(handle), labels)
            _fill_times(families, self._engine.profile(handle, 0), labels)


def _fill_device(families: Families, counters: LinkCounters) -> None:
    for name, help_text, value in (
        ("received", "Frames received on the device.", counters["received"]),
        ("sent", "Frames sent on the device.", counters["sent"]),
        ("uncopied", "Frames sent whose values the device read from the process's memory.", counters["uncopied"]),
        ("handed_over", "Frames received by a data thread other than their slot's.", counters["handed_over"]),
    ):
        families.counter(f"switchml_agent_device_{name}_frames_total", help_text, value)
    for reason in _DEVICE_DROPS:
        families.counter(
            "switchml_agent_device_dropped_frames_total", "Frames that reached no rank, or were not sent.",
            counters[reason], reason=reason,
        )  # fmt: skip


def _fill_packets(families: Families, status: RankStatus, labels: dict[str, str]) -> None:
    for name, help_text, value in (
        ("switchml_rank_sent_packets_total", "Contributions sent, including retransmissions.", status["sent"]),
        ("switchml_rank_received_packets_total", "Results accepted.", status["received"]),
        ("switchml_rank_ignored_packets_total", "Packets that answered nothing in flight.", status["ignored"]),
    ):
        families.counter(name, help_text, value, **labels)
    families.gauge(
        "switchml_rank_gso_batch_packets", "Measured number of packets sent in one message; 0 before the measurement.",
        status["gso_batch_size"], **labels,
    )  # fmt: skip
    for cause, value in (("timeout", status["retransmissions"]), ("fast_retransmit", status["fast_retransmissions"])):
        families.counter(
            "switchml_rank_retransmitted_packets_total", "Contributions retransmitted.", value, **labels, cause=cause
        )


def _fill_times(families: Families, profile: RankProfile, labels: dict[str, str]) -> None:
    for state, value in (
        ("quantize", profile["quantize"]), ("wait", profile["waiting"]), ("dequantize", profile["dequantize"]),
    ):  # fmt: skip
        families.counter(
            "switchml_rank_thread_seconds_total", "Time of the process's own thread.", value / 1e9, **labels,
            state=state,
        )  # fmt: skip
    for state, value in (("send", profile["sending"]), ("receive", profile["receiving"]), ("sum", profile["summing"])):
        families.counter(
            "switchml_rank_path_seconds_total", "Time of the agent (send, receive) and of the switch (sum).",
            value / 1e9, **labels, state=state,
        )  # fmt: skip
    for name, help_text, count in (
        ("switchml_rank_calls_total", "Calls that have ended.", profile["calls"]),
        ("switchml_rank_tensor_bytes_total", "Bytes of their tensors.", profile["bytes"]),
        (
            "switchml_rank_sleeps_total",
            "Number of times that the process's thread slept for results.",
            profile["sleeps"],
        ),
        ("switchml_rank_sent_bytes_total", "UDP payload sent.", profile["sent_bytes"]),
        ("switchml_rank_received_bytes_total", "UDP payload of accepted results.", profile["received_bytes"]),
    ):
        families.counter(name, help_text, count, **labels)
    families.durations(
        "switchml_rank_call_seconds", "Calls from submission to end.", profile["calls_took"], profile["call_time"],
        **labels,
    )  # fmt: skip
    families.durations(
        "switchml_rank_round_trip_seconds", "Time from sending a packet to its result, for packets sent once.",
        profile["round_trips"], profile["round_trip_time"], **labels,
    )  # fmt: skip
