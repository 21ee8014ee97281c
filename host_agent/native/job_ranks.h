// The ranks of one job on this host, for the slots that belong to one data thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "host_agent/native/assignment.h"
#include "host_agent/native/rank_channel.h"
#include "host_agent/native/rank_profile.h"
#include "host_agent/native/rank_sender.h"
#include "host_agent/native/transport.h"
#include "native/net/udp_batch.h"

namespace switchml::agent {

// A datagram that came to another thread's socket than that of its slot.
struct StrayDatagram {
  unsigned thread;  // of its slot
  sockaddr_in source;
  std::vector<uint8_t> bytes;
};

// All ranks of a job on one host share one UDP port, and one copy of each result is enough for all of them: every rank
// that waits for a phase of a slot waits for the same values. None of them can be a phase ahead of another one, because
// all get its result at the same moment. One thread uses it.
class JobRanks {
 public:
  // `assignment` is that of any of the ranks. `thread` of `threads` moves the slots that belong to it, and results of
  // them come over `transport`; `results` has one buffer a slot, which all ranks read.
  JobRanks(const RankAssignment& assignment, unsigned thread, unsigned threads, std::unique_ptr<JobTransport> transport,
           uint8_t* results);

  JobTransport& transport() const { return *transport_; }

  // `channel` outlives the rank here.
  void add(const RankAssignment& assignment, RankChannel* channel);
  void remove(uint8_t rank);
  bool empty() const { return ranks_.empty(); }
  // As RankSender's. Throws std::out_of_range for a rank that is not here, and what those throw.
  void freeze(uint8_t rank) { find(rank).freeze(); }
  void fetch(uint8_t rank, const std::vector<uint32_t>& targets) { find(rank).fetch(targets); }
  std::vector<uint32_t> held(uint8_t rank) const { return find(rank).held(); }
  // Adds what was counted for the rank here. Throws std::out_of_range for a rank that is not here.
  void add_to(uint8_t rank, RankProfile* profile) const;

  // Takes a batch of results from each socket. Returns whether there were any packets. Those of other threads' slots
  // are appended to `strays`.
  bool receive(net::ReceiveBatch& batch, Clock::time_point now, std::vector<StrayDatagram>* strays);
  void take(const net::Datagram& datagram, Clock::time_point now, std::vector<StrayDatagram>* strays);
  // Takes what the processes submitted; for ranks whose home is here, on behalf of all threads. Adds the threads that
  // were given something to `others`, as bits. Returns whether this one was.
  bool take_submissions(uint64_t* others);
  // Sends contributions and retransmissions that are due.
  void transmit(net::SendBatch& batch, Clock::time_point now);
  // Gives the processes the results since the last call.
  void publish(bool nothing_left);
  Clock::time_point next_deadline() const;
  // Tells the processes of ranks whose home is here whether they must ring.
  void set_sleeping(bool sleeping);
  // Returns whether take_submissions() would find something.
  bool submissions_wait() const;

 private:
  bool receive_from(unsigned source, net::ReceiveBatch& batch, Clock::time_point now,
                    std::vector<StrayDatagram>* strays);
  RankSender& find(uint8_t rank) const;
  bool is_home(const RankSender& rank) const { return rank.rank() % threads_ == thread_; }
  // Counts a packet that is not the result of a slot in flight.
  void ignore(const wire::Header& header);

  RankAssignment assignment_;
  unsigned thread_;
  unsigned threads_;
  std::unique_ptr<JobTransport> transport_;
  sockaddr_in switch_endpoint_;
  uint8_t* results_;
  std::vector<std::unique_ptr<RankSender>> ranks_;
};

}  // namespace switchml::agent
