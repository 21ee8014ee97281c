#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "dataplane/softswitch/native/tables/tables.h"

namespace switchml::soft {
namespace {

constexpr uint16_t kAnySlot = 0;  // a mask
const WorkerKey kKey{1, 0x020000000001, 0x0A000001, 50000, 7, 3, 0x5EC2E7};

Admission admission(uint16_t epoch) { return {8, 0xFF, epoch, 7}; }

uint16_t epoch_of(WorkerTable* table, const WorkerKey& key, uint16_t slot) {
  const WorkerEntry* entry = table->find(key, slot);
  return entry == nullptr ? 0 : entry->admission.epoch;
}

TEST(WorkerTable, EmptyTableAdmitsNothing) {
  WorkerTable table;
  EXPECT_EQ(table.find(kKey, 0), nullptr);
}

TEST(WorkerTable, EntryAdmitsTheSlotsThatItsMaskCovers) {
  WorkerTable table;
  table.set(kKey, {0x0040, 0xFFC0, 1}, admission(5));
  EXPECT_EQ(epoch_of(&table, kKey, 0x0040), 5);
  EXPECT_EQ(epoch_of(&table, kKey, 0x007F), 5);
  EXPECT_EQ(epoch_of(&table, kKey, 0x003F), 0);
  EXPECT_EQ(epoch_of(&table, kKey, 0x0080), 0);
}

TEST(WorkerTable, HighestPriorityWinsWhateverTheOrder) {
  WorkerTable table;
  table.set(kKey, {0, kAnySlot, 2}, admission(2));
  table.set(kKey, {0, kAnySlot, 9}, admission(9));
  table.set(kKey, {0, kAnySlot, 5}, admission(5));
  EXPECT_EQ(epoch_of(&table, kKey, 0), 9);
  table.remove(kKey, {0, kAnySlot, 9});
  EXPECT_EQ(epoch_of(&table, kKey, 0), 5);
}

TEST(WorkerTable, LowerPriorityServesWhatTheHigherDoesNotCover) {
  WorkerTable table;
  table.set(kKey, {0x0040, 0xFFC0, 9}, admission(9));
  table.set(kKey, {0, kAnySlot, 1}, admission(1));
  EXPECT_EQ(epoch_of(&table, kKey, 0x0041), 9);
  EXPECT_EQ(epoch_of(&table, kKey, 0x0081), 1);
}

TEST(WorkerTable, SettingAnEntryAgainKeepsItsCounter) {
  WorkerTable table;
  const SlotMatch match{0, kAnySlot, 1};
  table.set(kKey, match, admission(1));
  table.find(kKey, 0)->counter.add(3, 100);
  table.set(kKey, match, admission(2));
  EXPECT_EQ(epoch_of(&table, kKey, 0), 2);
  EXPECT_EQ(table.counter(kKey, match).packets, 3U);
  EXPECT_EQ(table.counter(kKey, match).bytes, 300U);
}

TEST(WorkerTable, RemovedEntryIsGoneThoughItWasTheLastOneFound) {
  WorkerTable table;
  table.set(kKey, {0, kAnySlot, 1}, admission(1));
  ASSERT_EQ(epoch_of(&table, kKey, 0), 1);
  table.remove(kKey, {0, kAnySlot, 1});
  EXPECT_EQ(table.find(kKey, 0), nullptr);
  WorkerKey other = kKey;
  other.worker = 4;
  table.set(other, {0, kAnySlot, 1}, admission(2));  // probably at the place of the removed one
  EXPECT_EQ(table.find(kKey, 0), nullptr);
}

TEST(WorkerTable, RepeatedLookUpsDoNotMixUpSenders) {
  WorkerTable table;
  WorkerKey other = kKey;
  other.worker = 4;
  table.set(kKey, {0, kAnySlot, 1}, admission(1));
  table.set(other, {0, kAnySlot, 1}, admission(2));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(epoch_of(&table, kKey, 0), 1);
    EXPECT_EQ(epoch_of(&table, other, 0), 2);
  }
}

TEST(WorkerTable, LastFoundEntryStaysRightWhenManyOthersCome) {
  WorkerTable table;
  table.set(kKey, {0, kAnySlot, 1}, admission(1));
  ASSERT_EQ(epoch_of(&table, kKey, 0), 1);
  for (uint16_t udp = 0; udp < 2000; ++udp) {
    WorkerKey other = kKey;
    other.sender = udp;
    table.set(other, {0, kAnySlot, 1}, admission(2));
  }
  EXPECT_EQ(epoch_of(&table, kKey, 0), 1);
}

TEST(WorkerTable, ValueBitsOutsideTheMaskAreRefused) {
  WorkerTable table;
  EXPECT_THROW(table.set(kKey, {0x0041, 0xFFC0, 1}, admission(1)), std::invalid_argument);
  EXPECT_EQ(table.find(kKey, 0x0041), nullptr);
}

TEST(WorkerTable, EntriesThatAreNotThereAreRefused) {
  WorkerTable table;
  EXPECT_THROW(table.remove(kKey, {0, kAnySlot, 1}), std::out_of_range);
  table.set(kKey, {0, kAnySlot, 1}, admission(1));
  EXPECT_THROW(table.remove(kKey, {0, kAnySlot, 2}), std::out_of_range);
  EXPECT_THROW(table.counter(kKey, {0, 0xFFFF, 1}), std::out_of_range);
  EXPECT_EQ(epoch_of(&table, kKey, 0), 1);
}

struct KeyChange {
  std::string field;
  std::function<void(WorkerKey*)> change;
};

class WorkerTableKey : public testing::TestWithParam<KeyChange> {};

TEST_P(WorkerTableKey, EveryFieldMustMatch) {
  WorkerTable table;
  table.set(kKey, {0, kAnySlot, 1}, admission(1));
  WorkerKey other = kKey;
  GetParam().change(&other);
  EXPECT_EQ(table.find(other, 0), nullptr);
  EXPECT_EQ(epoch_of(&table, kKey, 0), 1);
  EXPECT_EQ(table.find(other, 0), nullptr);  // the last entry found was another one
}

INSTANTIATE_TEST_SUITE_P(Fields, WorkerTableKey,
                         testing::Values(KeyChange{"ingress_port", [](WorkerKey* key) { key->ingress_port ^= 1; }},
                                         KeyChange{"eth_src", [](WorkerKey* key) { key->eth_src ^= 1ULL << 47U; }},
                                         KeyChange{"ipv4_src", [](WorkerKey* key) { key->ipv4_src ^= 1; }},
                                         KeyChange{"sender", [](WorkerKey* key) { key->sender ^= 1; }},
                                         KeyChange{"job", [](WorkerKey* key) { key->job ^= 1; }},
                                         KeyChange{"worker", [](WorkerKey* key) { key->worker ^= 1; }},
                                         KeyChange{"secret", [](WorkerKey* key) { key->secret ^= 1U << 31U; }},
                                         KeyChange{"kind", [](WorkerKey* key) { key->kind = wire::Kind::result; }}),
                         [](const auto& each) { return each.param.field; });

TEST(Tables, GroupSendsTheLastReplicaOfAPortFirst) {
  Tables tables;
  tables.set_group(3, {{2, 0}, {1, 1}, {2, 2}, {1, 3}});
  std::vector<std::pair<int, int>> order;
  for (const Replica& replica : *tables.find_group(3)) order.emplace_back(replica.port, replica.instance);
  EXPECT_EQ(order, (std::vector<std::pair<int, int>>{{1, 3}, {1, 1}, {2, 2}, {2, 0}}));
  EXPECT_EQ(tables.find_group(4), nullptr);
}

TEST(Tables, RanksOfDifferentJobsAreApart) {
  Tables tables;
  tables.set_rank(1, 2, {0, 10, 0});
  tables.set_rank(2, 1, {0, 20, 0});
  EXPECT_EQ(tables.find_rank(1, 2)->ipv4_dst, 10U);
  EXPECT_EQ(tables.find_rank(2, 1)->ipv4_dst, 20U);
  tables.remove_rank(1, 2);
  EXPECT_EQ(tables.find_rank(1, 2), nullptr);
  EXPECT_THROW(tables.remove_rank(1, 2), std::out_of_range);
}

TEST(LossTable, ThresholdIsTheShareOfPacketsLost) {
  LossTable table("loss_ingress_table");
  table.set(1, UINT32_MAX);
  table.set(2, 0);
  table.set(3, 1U << 31U);
  int lost = 0;
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(table.loses(1));
    ASSERT_FALSE(table.loses(2));
    ASSERT_FALSE(table.loses(4));
    lost += table.loses(3) ? 1 : 0;
  }
  EXPECT_NEAR(lost, 5000, 500);  // ten standard deviations
  EXPECT_TRUE(table.covers(2));
  table.remove(2);
  EXPECT_FALSE(table.covers(2));
  EXPECT_THROW(table.remove(2), std::out_of_range);
}

}  // namespace
}  // namespace switchml::soft
