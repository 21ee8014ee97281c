#include "native/channel/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "native/channel/shared_memory.h"
#include "native/channel/thread_states.h"

namespace switchml::channel {
namespace {

TEST(Channel, PartsDoNotOverlap) {
  for (const uint32_t slots : {1U, 2U, 64U, 4096U}) {
    for (const uint32_t values : {1U, 17U, 2048U}) {
      SharedMemory memory("test", Channel::bytes(slots, values, false), SharedMemory::Others::may_write);
      const Channel channel(memory.data(), slots, values);
      const std::vector<std::pair<const void*, size_t>> parts = {
          {&channel.control(), sizeof(ChannelControl)},
          {channel.submission_ring(), slots * sizeof(uint16_t)},
          {channel.completion_ring(), slots * sizeof(uint16_t)},
          {channel.contribution_tickets(), slots * sizeof(Ticket)},
          {channel.result_tickets(), slots * sizeof(Ticket)},
          {channel.contribution(0), (slots - 1) * Channel::payload_stride(values) + values * sizeof(uint32_t)},
          {channel.result(0), (slots - 1) * Channel::payload_stride(values) + values * sizeof(uint32_t)}};
      const uint8_t* end = memory.data();
      for (const auto& [begin, bytes] : parts) {
        EXPECT_GE(static_cast<const uint8_t*>(begin), end);
        end = static_cast<const uint8_t*>(begin) + bytes;
      }
      EXPECT_LE(end, memory.data() + memory.bytes());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(channel.contribution(slots - 1)) % 64, 0U);
    }
  }
}

TEST(Channel, ResultsApartAreWhereTheCallerSays) {
  std::vector<uint8_t> results(Channel::result_bytes(8, 16));
  SharedMemory memory("test", Channel::bytes(8, 16, true), SharedMemory::Others::may_write);
  const Channel channel(memory.data(), 8, 16, results.data());
  EXPECT_EQ(channel.result(3), results.data() + 3 * Channel::payload_stride(16));
}

TEST(SharedMemory, MappingsShowTheSameBytes) {
  SharedMemory made("test", 10'000, SharedMemory::Others::may_write);
  ASSERT_GE(made.bytes(), 10'000U);
  const SharedMemory mapped = SharedMemory::map(made.fd(), SharedMemory::Others::may_write);
  ASSERT_EQ(mapped.bytes(), made.bytes());
  EXPECT_EQ(mapped.data()[9'999], 0);
  made.data()[9'999] = 42;
  EXPECT_EQ(mapped.data()[9'999], 42);
  mapped.data()[0] = 43;
  EXPECT_EQ(made.data()[0], 43);
}

TEST(SharedMemory, DescriptorCanNeitherShrinkNorGrowIt) {
  const SharedMemory made("test", 8192, SharedMemory::Others::may_write);
  EXPECT_NE(ftruncate(made.fd(), 0), 0);
  EXPECT_NE(ftruncate(made.fd(), static_cast<off_t>(made.bytes() * 2)), 0);
}

TEST(SharedMemory, ReadersCannotMapItForWriting) {
  const SharedMemory made("test", 8192, SharedMemory::Others::may_read);
  EXPECT_THROW(SharedMemory::map(made.fd(), SharedMemory::Others::may_write), std::system_error);
  const SharedMemory mapped = SharedMemory::map(made.fd(), SharedMemory::Others::may_read);
  made.data()[0] = 7;
  EXPECT_EQ(mapped.data()[0], 7);
}

TEST(SharedMemory, MovesWithoutACopy) {
  SharedMemory made("test", 8192, SharedMemory::Others::may_write);
  uint8_t* data = made.data();
  const SharedMemory moved = std::move(made);
  EXPECT_EQ(moved.data(), data);
}

TEST(Counts, WrapAround) {
  EXPECT_TRUE(has_reached(5, 5));
  EXPECT_FALSE(has_reached(4, 5));
  EXPECT_TRUE(has_reached(2, UINT32_MAX));
  EXPECT_FALSE(has_reached(UINT32_MAX, 2));
}

class Sleeper : public testing::Test {
 protected:
  void sleep(uint32_t saw, uint32_t wakes_at) {
    control_.process_saw.store(saw);
    control_.process_wakes_at.store(wakes_at);
    announce_sleep(control_);
  }

  ChannelControl control_{};
};

TEST_F(Sleeper, AwakeProcessIsNotWoken) {
  EXPECT_FALSE(sleeps_until(control_, 5, true));
  wake_process(control_);
  EXPECT_EQ(control_.process_event.load(), 0U);
}

TEST_F(Sleeper, IsWokenAtItsCount) {
  sleep(0, 4);
  EXPECT_FALSE(sleeps_until(control_, 3, false));
  EXPECT_TRUE(sleeps_until(control_, 4, false));
  wake_process(control_);
  EXPECT_EQ(control_.process_event.load(), 1U);
  wake_process(control_);
  EXPECT_EQ(control_.process_event.load(), 1U);
}

TEST_F(Sleeper, IsWokenByEventAfterItsAnnouncement) {
  control_.process_event.store(7);
  EXPECT_EQ(announce_sleep(control_), 7U);
  wake_process(control_);
  EXPECT_EQ(control_.process_event.load(), 8U);
}

TEST_F(Sleeper, IsWokenForLessWhereNothingIsLeft) {
  sleep(1, 4);
  EXPECT_TRUE(sleeps_until(control_, 2, true));
  EXPECT_FALSE(sleeps_until(control_, 1, true));  // it has seen them all
}

TEST(ThreadTimes, RunningStateCountsUpToNow) {
  ProcessCounters counters{};
  counters.quantize_ns.store(100);
  counters.wait_ns.store(200);
  counters.state.store(static_cast<uint64_t>(ThreadState::wait));
  counters.since.store(1000);
  const counters::Thread times = thread_times_of(counters, 1050);
  EXPECT_EQ(times.quantize_ns, 100U);
  EXPECT_EQ(times.wait_ns, 250U);
  EXPECT_EQ(times.dequantize_ns, 0U);
}

TEST(ThreadTimes, StateThatChangesIsLeftOut) {
  ProcessCounters counters{};
  counters.dequantize_ns.store(7);
  counters.state.store(static_cast<uint64_t>(ThreadState::dequantize));
  counters.since.store(0);
  EXPECT_EQ(thread_times_of(counters, 1050).dequantize_ns, 7U);
}

TEST(ThreadTimes, BeginInTheFutureIsNotBelieved) {
  ProcessCounters counters{};
  counters.quantize_ns.store(5);
  counters.state.store(static_cast<uint64_t>(ThreadState::quantize));
  counters.since.store(2000);
  EXPECT_EQ(thread_times_of(counters, 1050).quantize_ns, 5U);
}

}  // namespace
}  // namespace switchml::channel
