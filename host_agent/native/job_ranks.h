// The ranks of one job on this host, for the slots that belong to one data thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "host_agent/native/assignment.h"
#include "host_agent/native/rank_channel.h"
#include "host_agent/native/rank_profile.h"
#include "host_agent/native/rank_sender.h"
#include "host_agent/native/transport.h"
#include "native/net/udp_batch.h"
#include "native/runtime/precedence.h"

namespace switchml::agent {

// A datagram that came to the socket of a thread that does not serve its slot.
struct StrayDatagram {
  unsigned thread;  // the thread that serves its slot
  sockaddr_in source;
  std::vector<uint8_t> bytes;
};

// All ranks of a job on one host share one UDP port, and one copy of each result is enough for all of them: every rank
// that waits for a phase of a slot waits for the same values. None of them can be a phase ahead of another one, because
// all get its result at the same moment. One thread uses it.
class JobRanks {
 public:
  // `assignment` is that of any of the ranks. `thread` of `threads` serves the slots that belong to it, and their
  // results come over `transport`; `results` has one buffer per slot, which all ranks read. `precedence` is that of the
  // job's tenant.
  JobRanks(const RankAssignment& assignment, unsigned thread, unsigned threads, std::unique_ptr<JobTransport> transport,
           uint8_t* results, std::shared_ptr<runtime::Precedence> precedence);

  JobTransport& transport() const { return *transport_; }

  // `channel` must outlive the rank in this object.
  void add(const RankAssignment& assignment, RankChannel* channel);
  void remove(uint16_t rank);
  bool empty() const { return senders_.front().empty(); }
  // The same as in RankSender, for all senders of a rank. Throws the same, and std::out_of_range for an unknown rank.
  void freeze(uint16_t rank);
  void fetch(uint16_t rank, const std::vector<uint32_t>& targets);
  std::vector<uint32_t> held(uint16_t rank) const;
  // While it is paused, nothing is sent, and what arrives is ignored.
  void pause(bool paused) { paused_ = paused; }
  // Adds this object's counters of the rank. Throws std::out_of_range for an unknown rank.
  void add_to(uint16_t rank, RankProfile* profile) const;

  // Takes a batch of results from each socket. Returns whether there were any packets. Those of other threads' slots
  // are appended to `strays`.
  bool receive(net::ReceiveBatch& batch, Clock::time_point now, std::vector<StrayDatagram>* strays);
  void take(const net::Datagram& datagram, Clock::time_point now, std::vector<StrayDatagram>* strays);
  // Takes the submissions of the processes; for ranks whose home is this thread, also those for other threads, which it
  // adds to `others` as bits. Returns whether there were any for this thread.
  bool take_submissions(uint64_t* others);
  // Sends contributions and retransmissions that are due: little of them while a more urgent job of the tenant sends.
  void transmit(net::SendBatch& batch, Clock::time_point now);
  // Passes the results since the last call to the processes.
  void publish(bool nothing_left);
  Clock::time_point next_deadline() const;
  // Tells the processes of ranks whose home is this thread whether they must ring.
  void set_sleeping(bool sleeping);
  // Returns whether take_submissions() would find something.
  bool submissions_wait() const;

 private:
  // The senders of all ranks for the slots of one of the job's switches.
  using Senders = std::vector<std::unique_ptr<RankSender>>;

  bool receive_from(unsigned source, net::ReceiveBatch& batch, Clock::time_point now,
                    std::vector<StrayDatagram>* strays);
  // Calls act(sender) for each sender of a rank.
  template <class Act>
  void for_senders_of(uint16_t rank, Act&& act) const;
  bool is_home(const RankSender& rank) const { return rank.rank() % threads_ == thread_; }
  // The senders of all ranks for the slots of the first switch: one of each rank.
  const Senders& ranks() const { return senders_.front(); }
  // Counts a packet that is not the result of a slot in flight.
  static void ignore(const wire::Header& header, const Senders& senders);

  RankAssignment assignment_;
  unsigned thread_;
  unsigned threads_;
  std::unique_ptr<JobTransport> transport_;
  uint8_t* results_;
  std::vector<sockaddr_in> switch_endpoints_;
  runtime::Precedence::Place place_;
  bool paused_ = false;
  uint32_t backlog_ = 0;          // of all senders, before the last transmit() sent
  std::vector<Senders> senders_;  // for each switch, in the same order of ranks
};

}  // namespace switchml::agent
