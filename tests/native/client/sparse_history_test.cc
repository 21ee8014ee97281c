#include "switchml/native/sparse_history.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>

namespace switchml::client {

namespace {

constexpr SparseHistory::Size kTable{1, uint64_t{4} << 20};
constexpr SparseHistory::Size kLayer{1, uint64_t{8} << 20};
constexpr uint64_t kBlocks = 100;

// A rank, whose calls of one size end as late as its history allows, or at once.
class Rank {
 public:
  explicit Rank(bool ends_late) : ends_late_(ends_late) {}

  // Makes a call whose blocks have values in this share, in percent; returns whether it is sparse.
  bool call(const SparseHistory::Size& size, uint64_t percent) {
    while (!history_.may_choose(size)) end_first();
    const auto trial = history_.choose(size);
    pending_.emplace_back(trial, percent);
    if (!ends_late_) end_first();
    return trial->sparse;
  }

  size_t pending() const { return pending_.size(); }

 private:
  void end_first() {
    const auto [trial, percent] = pending_.front();
    pending_.pop_front();
    trial->blocks = trial->sparse ? Blocks{0, percent, kBlocks} : Blocks{kBlocks, kBlocks, kBlocks};
    trial->ended = true;
  }

  SparseHistory history_;
  std::deque<std::pair<std::shared_ptr<Trial>, uint64_t>> pending_;
  bool ends_late_;
};

// Makes `count` calls at two ranks; returns a letter for each: s for a sparse one, d for a dense one.
std::string forms(Rank* early, Rank* late, const SparseHistory::Size& size, uint64_t percent, int count) {
  std::string made;
  for (int i = 0; i < count; ++i) {
    const bool sparse = early->call(size, percent);
    EXPECT_EQ(late->call(size, percent), sparse) << "call " << i << " after " << made;
    made += sparse ? 's' : 'd';
  }
  return made;
}

std::string times(size_t count, char form) { return std::string(count, form); }

}  // namespace

TEST(SparseHistory, CallsWithFewBlocksStaySparse) {
  Rank early(false);
  Rank late(true);
  EXPECT_EQ(forms(&early, &late, kTable, 60, 200), times(200, 's'));
  EXPECT_EQ(late.pending(), SparseHistory::kCallsApart);
}

TEST(SparseHistory, FullCallsAreDenseButForOneInAWhile) {
  Rank early(false);
  Rank late(true);
  // The first call follows none, so it is not like the others. The next two are full, which counts kCallsApart later.
  const std::string first = times(1 + SparseHistory::kCallsApart + 1, 's');
  const std::string dense = times(SparseHistory::kDenseCalls, 'd');
  const std::string made = forms(&early, &late, kTable, 61, 300);
  EXPECT_EQ(made.substr(0, first.size()), first);
  const size_t again = made.find('s', first.size());
  // Each of the sparse calls shows that it is full; the last one counts kCallsApart later.
  EXPECT_EQ(again, first.size() - 1 + SparseHistory::kCallsApart + SparseHistory::kDenseCalls);
  EXPECT_EQ(made.substr(again + 1, SparseHistory::kCallsApart - 1 + dense.size()),
            times(SparseHistory::kCallsApart - 1, 'd') + dense);
  EXPECT_EQ(made[again + SparseHistory::kCallsApart + dense.size()], 's');
}

TEST(SparseHistory, ACallThatIsSparseAgainIsNoticed) {
  Rank early(false);
  Rank late(true);
  forms(&early, &late, kTable, 100, 40);
  const std::string made = forms(&early, &late, kTable, 1, 200);
  const size_t again = made.find('s');
  ASSERT_NE(again, std::string::npos);
  EXPECT_EQ(made.substr(again + 1, SparseHistory::kCallsApart - 1), times(SparseHistory::kCallsApart - 1, 'd'));
  EXPECT_EQ(made.find('d', again + SparseHistory::kCallsApart), std::string::npos);
}

TEST(SparseHistory, OneFullCallIsNotEnough) {
  Rank early(false);
  Rank late(true);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(forms(&early, &late, kTable, i % 2 == 0 ? 100 : 5, 1), "s");
  }
}

TEST(SparseHistory, CallsInOtherPlacesOfAStepAreChosenApart) {
  Rank early(false);
  Rank late(true);
  std::string full;
  for (int step = 0; step < 30; ++step) {
    forms(&early, &late, kLayer, 2, 1);
    EXPECT_EQ(forms(&early, &late, kTable, 2, 1), "s");  // after the layer
    full += forms(&early, &late, kTable, 100, 1);        // after the other table
  }
  EXPECT_EQ(full.substr(20), times(10, 'd'));
}

TEST(SparseHistory, ManyOtherSizesMakeItForget) {
  Rank early(false);
  Rank late(true);
  EXPECT_EQ(forms(&early, &late, kTable, 100, 20).back(), 'd');
  for (uint64_t number = 0; number <= SparseHistory::kMostSeries; ++number) {
    forms(&early, &late, {2, number}, 1, 1);
  }
  EXPECT_EQ(forms(&early, &late, kTable, 100, 2), "ss");  // the first comes after another size than before
}

}  // namespace switchml::client
