#include "switchml/native/membership/failure.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "switchml/native/membership/words.h"

namespace switchml::client {
namespace {

TEST(Failure, IsMadeOfTheAgentsWord) {
  const std::vector<std::pair<const char*, FailureKind>> words{
      {"WorkerLost", FailureKind::worker_lost},   {"CollectiveMismatch", FailureKind::collective_mismatch},
      {"IntegrityError", FailureKind::integrity}, {"JobStopped", FailureKind::job_ended},
      {"JobFailed", FailureKind::job_failed},     {"SwitchLost", FailureKind::switch_lost},
      {"AgentLost", FailureKind::agent_lost},     {"EpochSpent", FailureKind::epoch_spent},
      {"SomethingNew", FailureKind::job_failed}};
  for (const auto& [word, kind] : words) {
    const auto failure =
        failure_of({word, {1, 4}, "the reason."}, "rank 2 of job 'j'", "all_reduce number 12 (sum of 8 float32)");
    EXPECT_EQ(failure->kind, kind) << word;
    EXPECT_EQ(failure->message.find("rank 2 of job 'j': the reason. "), 0U) << failure->message;
    EXPECT_NE(failure->message.find("the job again"), std::string::npos) << failure->message;
    EXPECT_EQ(failure->ranks.size(), kind == FailureKind::worker_lost ? 2U : 0U);
    const bool names_call =
        failure->message.find("This rank's call there is all_reduce number 12") != std::string::npos;
    EXPECT_EQ(names_call, kind == FailureKind::collective_mismatch) << failure->message;
  }
}

TEST(Failure, OfAnotherEpochTellsTheWorld) {
  Attachment now;
  now.epoch = 7;
  now.rank = 1;
  now.world_size = 3;
  now.joined = {2};
  const auto failure = world_changed({"WorldChanged", {0}, "rank 0 was lost"}, "rank 2 of job 'j'", now, 12);
  EXPECT_EQ(
      failure->message,
      "rank 2 of job 'j': rank 0 was lost. The job continues in epoch 7 with 3 ranks; this one is rank 1; rank 2 is "
      "a new process. 12 calls of the previous epoch are complete on every rank.");
  EXPECT_EQ(failure->world.completed, 12U);
  EXPECT_EQ(failure->ranks, (std::vector<uint32_t>{0}));
}

TEST(Failure, IsRemarkedInACopy) {
  const auto failure = make_failure(FailureKind::closed, "m");
  try {
    throw_with_remark(*failure, "And more.");
  } catch (const FailureError& error) {
    EXPECT_EQ(error.failure().message, "m And more.");
    EXPECT_STREQ(error.what(), "m And more.");
  }
  EXPECT_EQ(failure->message, "m");
}

TEST(Words, NameRanks) {
  EXPECT_EQ(rank_numbers({3, 0}), "3, 0");
  std::vector<uint32_t> many(63);
  std::iota(many.begin(), many.end(), 0U);
  many.push_back(64);
  EXPECT_EQ(rank_numbers(many), "0 to 62, 64");
  std::vector<uint32_t> even;
  for (uint32_t rank = 0; rank < 2050; rank += 2) even.push_back(rank);
  EXPECT_EQ(rank_numbers(even), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 and 1009 more");
}

TEST(Words, QuoteNamesAndRoundSeconds) {
  EXPECT_EQ(quoted_name("job-1"), "'job-1'");
  EXPECT_EQ(quoted_name("it's"), "\"it's\"");
  EXPECT_EQ(quoted_name("'\"\\"), "'\\'\"\\\\'");
  EXPECT_EQ(seconds_in_words(30), "30");
  EXPECT_EQ(seconds_in_words(0.2), "0.2");
  EXPECT_EQ(seconds_in_words(1.057), "1.06");
}

}  // namespace
}  // namespace switchml::client
