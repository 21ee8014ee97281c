# Generated from switchml/common/counters.toml by tools/generate; do not edit.
"""The counters of the native code, by what they count."""

from typing import Final

from switchml.common.counters import Counter

RANK: Final = (
    Counter(
        name="sent",
        unit="packets",
        help="contributions sent, including retransmissions",
        metric="switchml_rank_sent_packets_total",
        metric_help="Contributions sent, including retransmissions.",
        headings={"ranks": "sent", "top": "packets/s"},
    ),
    Counter(
        name="sent_without_values",
        unit="packets",
        help="contributions sent without values, including retransmissions",
        metric="switchml_rank_sent_without_values_packets_total",
        metric_help="Contributions sent without values, including retransmissions.",
        headings={"profile": "without values"},
    ),
    Counter(
        name="received",
        unit="packets",
        help="results accepted",
        metric="switchml_rank_received_packets_total",
        metric_help="Results accepted.",
    ),
    Counter(
        name="retransmissions",
        unit="packets",
        help="after a timeout",
        metric="switchml_rank_retransmitted_packets_total",
        metric_help="Contributions retransmitted.",
        labels={"cause": "timeout"},
        headings={"ranks": "retransmitted", "top": "retransmits/s", "profile": "retransmitted"},
    ),
    Counter(
        name="fast_retransmissions",
        unit="packets",
        help="after results of later contributions",
        metric="switchml_rank_retransmitted_packets_total",
        metric_help="Contributions retransmitted.",
        labels={"cause": "fast_retransmit"},
        headings={"ranks": "retransmitted", "top": "retransmits/s", "profile": "retransmitted"},
    ),
    Counter(
        name="ignored",
        unit="packets",
        help="packets that answered nothing in flight",
        metric="switchml_rank_ignored_packets_total",
        metric_help="Packets that answered nothing in flight.",
    ),
)
"""Packets of a rank."""

THREAD: Final = (
    Counter(
        name="quantize_ns",
        unit="nanoseconds",
        help="converting values of tensors",
        metric="switchml_rank_thread_seconds_total",
        metric_help="Time of the process's own thread.",
        labels={"state": "quantize"},
        headings={"profile": "quantize"},
    ),
    Counter(
        name="wait_ns",
        unit="nanoseconds",
        help="waiting for results",
        metric="switchml_rank_thread_seconds_total",
        metric_help="Time of the process's own thread.",
        labels={"state": "wait"},
        headings={"profile": "wait"},
    ),
    Counter(
        name="dequantize_ns",
        unit="nanoseconds",
        help="converting results",
        metric="switchml_rank_thread_seconds_total",
        metric_help="Time of the process's own thread.",
        labels={"state": "dequantize"},
        headings={"profile": "dequantize"},
    ),
)
"""Time of the thread of a rank's process that works on its calls."""

PROCESS: Final = (
    Counter(
        name="calls",
        unit="calls",
        help="calls that have ended",
        metric="switchml_rank_calls_total",
        metric_help="Calls that have ended.",
        headings={"profile": "calls"},
    ),
    Counter(
        name="bytes",
        unit="bytes",
        help="bytes of the tensors of calls that have ended",
        metric="switchml_rank_tensor_bytes_total",
        metric_help="Bytes of the tensors of calls that have ended.",
    ),
    Counter(
        name="call_time_ns",
        unit="nanoseconds",
        help="from submission to end, all calls together",
        headings={"profile": "call"},
    ),
    Counter(
        name="calls_by_duration",
        unit="durations",
        help="calls from submission to end",
        metric="switchml_rank_call_seconds",
        metric_help="Calls from submission to end.",
        total="call_time_ns",
    ),
    Counter(
        name="sparse_calls_dense",
        unit="calls",
        help="sparse calls that were made as dense ones, as the switches or the array require",
        metric="switchml_rank_sparse_calls_dense_total",
        metric_help="Sparse calls that were made as dense ones, as the switches or the array require.",
    ),
    Counter(
        name="sleeps",
        unit="times",
        help="number of times that the process's thread slept for results",
        metric="switchml_rank_sleeps_total",
        metric_help="Number of times that the process's thread slept for results.",
        headings={"profile": "sleeps"},
    ),
)
"""Calls of a rank's process."""

PATH: Final = (
    Counter(
        name="send_ns",
        unit="nanoseconds",
        help="the agent's data threads send, or look for something to send",
        metric="switchml_rank_path_seconds_total",
        metric_help="Time that the agent and the switch spend on the rank.",
        labels={"state": "send"},
        headings={"profile": "send"},
    ),
    Counter(
        name="receive_ns",
        unit="nanoseconds",
        help="the agent's data threads receive",
        metric="switchml_rank_path_seconds_total",
        metric_help="Time that the agent and the switch spend on the rank.",
        labels={"state": "receive"},
        headings={"profile": "receive"},
    ),
    Counter(
        name="sum_ns",
        unit="nanoseconds",
        help="a switch that shares the rank's memory adds up values",
        metric="switchml_rank_path_seconds_total",
        metric_help="Time that the agent and the switch spend on the rank.",
        labels={"state": "sum"},
        headings={"profile": "sum"},
    ),
    Counter(
        name="sent_bytes",
        unit="bytes",
        help="UDP payload sent",
        metric="switchml_rank_sent_bytes_total",
        metric_help="UDP payload sent.",
    ),
    Counter(
        name="received_bytes",
        unit="bytes",
        help="UDP payload of accepted results; one that several ranks of a job share counts for each",
        metric="switchml_rank_received_bytes_total",
        metric_help="UDP payload of accepted results; one that several ranks of a job share counts for each.",
    ),
    Counter(
        name="round_trip_time_ns",
        unit="nanoseconds",
        help="from sending a packet to its result, all measured packets together",
    ),
    Counter(
        name="round_trips_by_duration",
        unit="durations",
        help="packets sent once that completed their slot, from sending to the result",
        metric="switchml_rank_round_trip_seconds",
        metric_help="Packets sent once that completed their slot, from sending to the result.",
        total="round_trip_time_ns",
    ),
)
"""Work of the agent and the switch for a rank."""

DEVICE: Final = (
    Counter(
        name="received",
        unit="frames",
        help="frames received on the device",
        metric="switchml_agent_device_received_frames_total",
        metric_help="Frames received on the device.",
    ),
    Counter(
        name="sent",
        unit="frames",
        help="frames sent on the device",
        metric="switchml_agent_device_sent_frames_total",
        metric_help="Frames sent on the device.",
    ),
    Counter(
        name="uncopied",
        unit="frames",
        help="frames sent whose values the device read from the process's memory",
        metric="switchml_agent_device_uncopied_frames_total",
        metric_help="Frames sent whose values the device read from the process's memory.",
    ),
    Counter(
        name="handed_over",
        unit="frames",
        help="frames received by a data thread other than their slot's, which got them",
        metric="switchml_agent_device_handed_over_frames_total",
        metric_help="Frames received by a data thread other than their slot's, which got them.",
    ),
    Counter(
        name="receive_overflow",
        unit="frames",
        help="dropped by the device because they were not taken in time",
        metric="switchml_agent_device_dropped_frames_total",
        metric_help="Frames that reached no rank, or were not sent.",
        labels={"reason": "receive_overflow"},
    ),
    Counter(
        name="receive_errors",
        unit="frames",
        help="dropped because the device found a wrong checksum or length",
        metric="switchml_agent_device_dropped_frames_total",
        metric_help="Frames that reached no rank, or were not sent.",
        labels={"reason": "receive_errors"},
    ),
    Counter(
        name="send_errors",
        unit="frames",
        help="not sent because the device had no room",
        metric="switchml_agent_device_dropped_frames_total",
        metric_help="Frames that reached no rank, or were not sent.",
        labels={"reason": "send_errors"},
    ),
)
"""Frames of a DPDK or AF_XDP device, in this process."""

LINK: Final = (
    Counter(
        name="malformed",
        unit="frames",
        help="shorter than their headers, or with lengths that contradict each other",
        metric="switchml_agent_device_dropped_frames_total",
        metric_help="Frames that reached no rank, or were not sent.",
        labels={"reason": "malformed"},
    ),
    Counter(
        name="bad_checksum",
        unit="frames",
        help="the checksum of the IPv4 header is wrong",
        metric="switchml_agent_device_dropped_frames_total",
        metric_help="Frames that reached no rank, or were not sent.",
        labels={"reason": "bad_checksum"},
    ),
    Counter(
        name="not_for_us",
        unit="frames",
        help="neither ARP nor UDP to the agent's address",
        metric="switchml_agent_device_dropped_frames_total",
        metric_help="Frames that reached no rank, or were not sent.",
        labels={"reason": "not_for_us"},
    ),
    Counter(
        name="unknown_port",
        unit="frames",
        help="UDP, but to no job",
        metric="switchml_agent_device_dropped_frames_total",
        metric_help="Frames that reached no rank, or were not sent.",
        labels={"reason": "unknown_port"},
    ),
    Counter(
        name="unresolved",
        unit="frames",
        help="not sent because the switch's MAC address is not known yet",
        metric="switchml_agent_device_dropped_frames_total",
        metric_help="Frames that reached no rank, or were not sent.",
        labels={"reason": "unresolved"},
    ),
)
"""Frames of a device that its agent did not use or send."""

PORT: Final = (
    Counter(
        name="received",
        unit="packets",
        help="packets received, before injected faults",
        metric="switchml_softswitch_port_received_packets_total",
        metric_help="Packets received, before injected faults.",
    ),
    Counter(
        name="sent",
        unit="packets",
        help="packets sent",
        metric="switchml_softswitch_port_sent_packets_total",
        metric_help="Packets sent.",
    ),
    Counter(
        name="receive_overflow",
        unit="packets",
        help="packets lost because the receive buffer was full",
        metric="switchml_softswitch_port_receive_overflows_total",
        metric_help="Packets lost because the receive buffer was full.",
    ),
    Counter(
        name="receive_errors",
        unit="frames",
        help="frames dropped because a DPDK or AF_XDP device detected an error",
        metric="switchml_softswitch_port_receive_errors_total",
        metric_help="Frames dropped because a DPDK or AF_XDP device detected an error.",
    ),
    Counter(
        name="handed_over",
        unit="frames",
        help="frames received by a shard other than their slot's, which got them",
        metric="switchml_softswitch_port_handed_over_frames_total",
        metric_help="Frames received by a shard other than their slot's, which got them.",
    ),
    Counter(
        name="send_errors",
        unit="packets",
        help="packets that the kernel or a device refused to send",
        metric="switchml_softswitch_port_send_errors_total",
        metric_help="Packets that the kernel or a device refused to send.",
    ),
)
"""Packets or frames of a port of the soft switch."""

FAULTS: Final = (
    Counter(
        name="injected_drop",
        unit="packets",
        help="dropped",
        metric="switchml_softswitch_port_injected_faults_total",
        metric_help="Faults injected on purpose (--drop and similar options).",
        labels={"fault": "drop"},
    ),
    Counter(
        name="injected_duplicate",
        unit="packets",
        help="sent twice",
        metric="switchml_softswitch_port_injected_faults_total",
        metric_help="Faults injected on purpose (--drop and similar options).",
        labels={"fault": "duplicate"},
    ),
    Counter(
        name="injected_delay",
        unit="packets",
        help="held back until others have passed",
        metric="switchml_softswitch_port_injected_faults_total",
        metric_help="Faults injected on purpose (--drop and similar options).",
        labels={"fault": "delay"},
    ),
    Counter(
        name="injected_flip",
        unit="packets",
        help="changed in one bit",
        metric="switchml_softswitch_port_injected_faults_total",
        metric_help="Faults injected on purpose (--drop and similar options).",
        labels={"fault": "flip"},
    ),
)
"""Faults injected on purpose (--drop and similar options)."""
