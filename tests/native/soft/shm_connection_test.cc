// The order of jobs whose ranks share memory with a switch, with a simulated clock.
#include "dataplane/softswitch/native/shared_memory/shm_connection.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace switchml::soft {
namespace {

using std::chrono::milliseconds;

constexpr uint16_t kEpoch = 1;
constexpr uint32_t kSlots = 64;
constexpr uint32_t kValues = 4;
constexpr uint16_t kRanks = 2;
constexpr uint32_t kAgent = 0x7F000001;
constexpr milliseconds kLongestHold{2};

// Rank 0 of a job, whose other rank is the test.
class Rank {
 public:
  Rank(uint16_t job, uint8_t priority, const std::shared_ptr<runtime::Precedence>& precedence)
      : job_(std::make_shared<ShmJob>(ShmJobKey{job, kEpoch, 0, kRanks, kSlots, kValues})),
        connection_({job_->key(), 0, 0, kRanks, kAgent, 0, true, true, 0, priority}, job_,
                    eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), {}, precedence),
        process_(connection_.memory().data(), kSlots, kValues) {}

  void submit(uint32_t first, uint32_t end) {
    for (uint32_t position = first; position < end; ++position) {
      process_.contribution_tickets()[position % kSlots] = {position, position, 0, 0, kValues, 1, 0, 0};
      process_.submission_ring()[position % kSlots] = static_cast<uint16_t>(position % kSlots);
    }
    process_.control().submitted.store(end);
  }
  // Takes what the switch would take in one turn.
  std::vector<wire::Header> take(ShmConnection::Clock::time_point now) {
    std::vector<wire::Header> taken;
    wire::Header header;
    while (connection_.take(&header)) taken.push_back(header);
    connection_.update_hold(now);
    return taken;
  }
  void answer(const std::vector<wire::Header>& contributions) {
    const std::vector<uint8_t> words(kValues * sizeof(uint32_t));
    for (wire::Header header : contributions) {
      header.kind = static_cast<uint8_t>(wire::Kind::result);
      connection_.complete(header, words.data());
    }
  }
  ShmConnection* operator->() { return &connection_; }

 private:
  std::shared_ptr<ShmJob> job_;
  ShmConnection connection_;
  channel::Channel process_;
};

class ShmPriorities : public testing::Test {
 protected:
  std::shared_ptr<runtime::Precedence> precedence_ = std::make_shared<runtime::Precedence>();
  Rank urgent_{1, 3, precedence_};
  Rank other_{2, 1, precedence_};
  ShmConnection::Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(ShmPriorities, RankIsHeldBackUntilTheUrgentJobHasItsResults) {
  urgent_.submit(0, kSlots);
  other_.submit(0, kSlots);
  const std::vector<wire::Header> urgent = urgent_.take(now_);
  EXPECT_EQ(urgent.size(), kSlots);
  const std::vector<wire::Header> other = other_.take(now_);
  EXPECT_EQ(other.size(), runtime::Precedence::kHeldBackWindow);
  EXPECT_TRUE(other_->holds_back());
  EXPECT_FALSE(other_->may_send());
  other_.answer(other);
  EXPECT_TRUE(other_->may_send());
  urgent_.answer(urgent);
  EXPECT_EQ(other_.take(now_).size(), kSlots - 1);
}

TEST_F(ShmPriorities, RankOfALessUrgentJobHoldsNoJobBack) {
  other_.submit(0, kSlots);
  EXPECT_EQ(other_.take(now_).size(), kSlots);
  urgent_.submit(0, kSlots);
  EXPECT_EQ(urgent_.take(now_).size(), kSlots);
}

// The urgent job's other rank may wait for the other job, so the hold ends on its own.
TEST_F(ShmPriorities, UrgentJobThatWaitsForAnotherRankHoldsNoJobBack) {
  urgent_.submit(0, kSlots);
  other_.submit(0, kSlots);
  const std::vector<wire::Header> urgent = urgent_.take(now_);
  EXPECT_EQ(urgent_->hold_deadline(), now_ + kLongestHold);
  EXPECT_EQ(other_.take(now_).size(), runtime::Precedence::kHeldBackWindow);
  urgent_->update_hold(now_ + kLongestHold);
  EXPECT_EQ(urgent_->hold_deadline(), ShmConnection::Clock::time_point::max());
  EXPECT_EQ(other_.take(now_ + kLongestHold).size(), kSlots - 1);
}

TEST_F(ShmPriorities, ResultsProlongTheHold) {
  urgent_.submit(0, kSlots);
  std::vector<wire::Header> urgent = urgent_.take(now_);
  for (uint32_t position = 0; position + 1 < kSlots; ++position) {
    now_ += milliseconds(1);
    urgent_.answer({urgent[position]});
    urgent_->update_hold(now_);
  }
  EXPECT_EQ(urgent_->hold_deadline(), now_ + kLongestHold);
  now_ += kLongestHold;
  urgent_->update_hold(now_);
  EXPECT_EQ(urgent_->hold_deadline(), ShmConnection::Clock::time_point::max());
  urgent_.answer({urgent.back()});
  urgent_.submit(kSlots, kSlots + 1);
  urgent_.take(now_);
  EXPECT_EQ(urgent_->hold_deadline(), now_ + kLongestHold);
}

TEST_F(ShmPriorities, StoppedRankHoldsNoJobBack) {
  urgent_.submit(0, kSlots);
  urgent_.take(now_);
  urgent_->freeze();
  urgent_->update_hold(now_);
  other_.submit(0, kSlots);
  EXPECT_EQ(other_.take(now_).size(), kSlots);
}

}  // namespace
}  // namespace switchml::soft
