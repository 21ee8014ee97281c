// Generated from switchml/common/counters.toml by tools/generate; do not edit.
#pragma once

#include <cstdint>
#include <tuple>

#include "native/runtime/durations.h"

namespace switchml::counters {

// Packets of a rank.
struct Rank {
  uint64_t sent = 0;
  uint64_t sent_without_values = 0;
  uint64_t received = 0;
  uint64_t retransmissions = 0;
  uint64_t fast_retransmissions = 0;
  uint64_t ignored = 0;

  void add(const Rank& other) {
    sent += other.sent;
    sent_without_values += other.sent_without_values;
    received += other.received;
    retransmissions += other.retransmissions;
    fast_retransmissions += other.fast_retransmissions;
    ignored += other.ignored;
  }

  // Returns a tuple of make(name, member, help) for each of them.
  template <class Make>
  static constexpr auto fields(Make make) {
    return std::make_tuple(
        make("sent", &Rank::sent, "contributions sent, including retransmissions"),
        make("sent_without_values", &Rank::sent_without_values,
             "contributions sent without values, including retransmissions"),
        make("received", &Rank::received, "results accepted"),
        make("retransmissions", &Rank::retransmissions, "after a timeout"),
        make("fast_retransmissions", &Rank::fast_retransmissions, "after results of later contributions"),
        make("ignored", &Rank::ignored, "packets that answered nothing in flight"));
  }
};

// Time of the thread of a rank's process that works on its calls.
struct Thread {
  uint64_t quantize_ns = 0;
  uint64_t wait_ns = 0;
  uint64_t dequantize_ns = 0;

  void add(const Thread& other) {
    quantize_ns += other.quantize_ns;
    wait_ns += other.wait_ns;
    dequantize_ns += other.dequantize_ns;
  }

  // Returns a tuple of make(name, member, help) for each of them.
  template <class Make>
  static constexpr auto fields(Make make) {
    return std::make_tuple(make("quantize_ns", &Thread::quantize_ns, "converting values of tensors"),
                           make("wait_ns", &Thread::wait_ns, "waiting for results"),
                           make("dequantize_ns", &Thread::dequantize_ns, "converting results"));
  }
};

// Calls of a rank's process.
struct Process {
  uint64_t calls = 0;
  uint64_t bytes = 0;
  uint64_t call_time_ns = 0;
  runtime::DurationCounts calls_by_duration{};
  uint64_t sparse_calls_dense = 0;
  uint64_t sleeps = 0;

  void add(const Process& other) {
    calls += other.calls;
    bytes += other.bytes;
    call_time_ns += other.call_time_ns;
    runtime::add_counts(&calls_by_duration, other.calls_by_duration);
    sparse_calls_dense += other.sparse_calls_dense;
    sleeps += other.sleeps;
  }

  // Returns a tuple of make(name, member, help) for each of them.
  template <class Make>
  static constexpr auto fields(Make make) {
    return std::make_tuple(
        make("calls", &Process::calls, "calls that have ended"),
        make("bytes", &Process::bytes, "bytes of the tensors of calls that have ended"),
        make("call_time_ns", &Process::call_time_ns, "from submission to end, all calls together"),
        make("calls_by_duration", &Process::calls_by_duration, "calls from submission to end"),
        make("sparse_calls_dense", &Process::sparse_calls_dense,
             "sparse calls that were made as dense ones, as the switches or the array require"),
        make("sleeps", &Process::sleeps, "number of times that the process's thread slept for results"));
  }
};

// Work of the agent and the switch for a rank.
struct Path {
  uint64_t send_ns = 0;
  uint64_t receive_ns = 0;
  uint64_t sum_ns = 0;
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t round_trip_time_ns = 0;
  runtime::DurationCounts round_trips_by_duration{};

  void add(const Path& other) {
    send_ns += other.send_ns;
    receive_ns += other.receive_ns;
    sum_ns += other.sum_ns;
    sent_bytes += other.sent_bytes;
    received_bytes += other.received_bytes;
    round_trip_time_ns += other.round_trip_time_ns;
    runtime::add_counts(&round_trips_by_duration, other.round_trips_by_duration);
  }

  // Returns a tuple of make(name, member, help) for each of them.
  template <class Make>
  static constexpr auto fields(Make make) {
    return std::make_tuple(
        make("send_ns", &Path::send_ns, "the agent's data threads send, or look for something to send"),
        make("receive_ns", &Path::receive_ns, "the agent's data threads receive"),
        make("sum_ns", &Path::sum_ns, "a switch that shares the rank's memory adds up values"),
        make("sent_bytes", &Path::sent_bytes, "UDP payload sent"),
        make("received_bytes", &Path::received_bytes,
             "UDP payload of accepted results; one that several ranks of a job share counts for each"),
        make("round_trip_time_ns", &Path::round_trip_time_ns,
             "from sending a packet to its result, all measured packets together"),
        make("round_trips_by_duration", &Path::round_trips_by_duration,
             "packets sent once that completed their slot, from sending to the result"));
  }
};

// Frames of a DPDK or AF_XDP device, in this process.
struct Device {
  uint64_t received = 0;
  uint64_t sent = 0;
  uint64_t uncopied = 0;
  uint64_t handed_over = 0;
  uint64_t receive_overflow = 0;
  uint64_t receive_errors = 0;
  uint64_t send_errors = 0;

  void add(const Device& other) {
    received += other.received;
    sent += other.sent;
    uncopied += other.uncopied;
    handed_over += other.handed_over;
    receive_overflow += other.receive_overflow;
    receive_errors += other.receive_errors;
    send_errors += other.send_errors;
  }

  // Returns a tuple of make(name, member, help) for each of them.
  template <class Make>
  static constexpr auto fields(Make make) {
    return std::make_tuple(
        make("received", &Device::received, "frames received on the device"),
        make("sent", &Device::sent, "frames sent on the device"),
        make("uncopied", &Device::uncopied, "frames sent whose values the device read from the process's memory"),
        make("handed_over", &Device::handed_over,
             "frames received by a data thread other than their slot's, which got them"),
        make("receive_overflow", &Device::receive_overflow,
             "dropped by the device because they were not taken in time"),
        make("receive_errors", &Device::receive_errors, "dropped because the device found a wrong checksum or length"),
        make("send_errors", &Device::send_errors, "not sent because the device had no room"));
  }
};

// Frames of a device that its agent did not use or send.
struct Link {
  uint64_t malformed = 0;
  uint64_t bad_checksum = 0;
  uint64_t not_for_us = 0;
  uint64_t unknown_port = 0;
  uint64_t unresolved = 0;

  void add(const Link& other) {
    malformed += other.malformed;
    bad_checksum += other.bad_checksum;
    not_for_us += other.not_for_us;
    unknown_port += other.unknown_port;
    unresolved += other.unresolved;
  }

  // Returns a tuple of make(name, member, help) for each of them.
  template <class Make>
  static constexpr auto fields(Make make) {
    return std::make_tuple(
        make("malformed", &Link::malformed, "shorter than their headers, or with lengths that contradict each other"),
        make("bad_checksum", &Link::bad_checksum, "the checksum of the IPv4 header is wrong"),
        make("not_for_us", &Link::not_for_us, "neither ARP nor UDP to the agent's address"),
        make("unknown_port", &Link::unknown_port, "UDP, but to no job"),
        make("unresolved", &Link::unresolved, "not sent because the switch's MAC address is not known yet"));
  }
};

// Packets or frames of a port of the soft switch.
struct Port {
  uint64_t received = 0;
  uint64_t sent = 0;
  uint64_t receive_overflow = 0;
  uint64_t receive_errors = 0;
  uint64_t handed_over = 0;
  uint64_t send_errors = 0;

  void add(const Port& other) {
    received += other.received;
    sent += other.sent;
    receive_overflow += other.receive_overflow;
    receive_errors += other.receive_errors;
    handed_over += other.handed_over;
    send_errors += other.send_errors;
  }

  // Returns a tuple of make(name, member, help) for each of them.
  template <class Make>
  static constexpr auto fields(Make make) {
    return std::make_tuple(
        make("received", &Port::received, "packets received, before injected faults"),
        make("sent", &Port::sent, "packets sent"),
        make("receive_overflow", &Port::receive_overflow, "packets lost because the receive buffer was full"),
        make("receive_errors", &Port::receive_errors,
             "frames dropped because a DPDK or AF_XDP device detected an error"),
        make("handed_over", &Port::handed_over, "frames received by a shard other than their slot's, which got them"),
        make("send_errors", &Port::send_errors, "packets that the kernel or a device refused to send"));
  }
};

// Faults injected on purpose (--drop and similar options).
struct Faults {
  uint64_t injected_drop = 0;
  uint64_t injected_duplicate = 0;
  uint64_t injected_delay = 0;
  uint64_t injected_flip = 0;

  void add(const Faults& other) {
    injected_drop += other.injected_drop;
    injected_duplicate += other.injected_duplicate;
    injected_delay += other.injected_delay;
    injected_flip += other.injected_flip;
  }

  // Returns a tuple of make(name, member, help) for each of them.
  template <class Make>
  static constexpr auto fields(Make make) {
    return std::make_tuple(make("injected_drop", &Faults::injected_drop, "dropped"),
                           make("injected_duplicate", &Faults::injected_duplicate, "sent twice"),
                           make("injected_delay", &Faults::injected_delay, "held back until others have passed"),
                           make("injected_flip", &Faults::injected_flip, "changed in one bit"));
  }
};

}  // namespace switchml::counters
