#include "switchml/native/sparse_history.h"

namespace switchml::client {

namespace {

constexpr double kFullShare = 0.6;           // of blocks with values, above which a dense call is as good
constexpr uint32_t kFullCallsToBeDense = 2;  // in a row

}  // namespace

bool SparseHistory::may_choose(const Size& next) const {
  const auto found = series_.find({previous_, next});
  if (found == series_.end() || found->second.latest.size() < kCallsApart) {
    return true;
  }
  return found->second.latest.front()->ended;
}

std::shared_ptr<Trial> SparseHistory::choose(const Size& next) {
  if (series_.size() == kMostSeries && series_.count({previous_, next}) == 0) {
    series_.clear();  // sizes that seldom return, such as those of gathered rows: nothing to learn from them
  }
  Series& series = series_[{previous_, next}];
  previous_ = next;
  if (series.latest.size() == kCallsApart) {
    learn(*series.latest.front(), &series);
    series.latest.pop_front();
  }
  auto trial = std::make_shared<Trial>();
  trial->sparse = series.dense_left == 0;
  if (!trial->sparse) {
    series.dense_left -= 1;
  } else if (series.full_in_a_row >= kFullCallsToBeDense) {
    series.dense_left = kCallsApart - 1;  // until the result of this one counts
  }
  series.latest.push_back(trial);
  return trial;
}

void SparseHistory::learn(const Trial& trial, Series* series) {
  if (!trial.sparse) {
    return;
  }
  if (static_cast<double>(trial.blocks.received) <= kFullShare * static_cast<double>(trial.blocks.all)) {
    series->full_in_a_row = 0;
    return;
  }
  series->full_in_a_row += 1;
  if (series->full_in_a_row >= kFullCallsToBeDense) {
    series->dense_left = kDenseCalls;
  }
}

}  // namespace switchml::client
