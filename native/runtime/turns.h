// Who may touch a switch's pipeline, and when.
#pragma once

#include <mutex>
#include <shared_mutex>

namespace switchml::runtime {

// Data threads and control operations take turns: whoever waits for `next_` is next, so that a data thread under load,
// which asks again at once, does not keep the others out. Outside of its turn a data thread may still read and write
// values that nobody else will touch (SumTask); a control operation waits until no thread does.
class Turns {
 public:
  class Data {
   public:
    explicit Data(Turns* turns) : lock_(turns->pipeline_, std::defer_lock) {
      const std::lock_guard<std::mutex> next(turns->next_);
      lock_.lock();
    }

   private:
    std::unique_lock<std::mutex> lock_;
  };

  class Control {
   public:
    explicit Control(Turns* turns) : turn_(turns), nobody_sums_(turns->values_) {}

   private:
    Data turn_;
    std::unique_lock<std::shared_mutex> nobody_sums_;
  };

  // To be locked, shared, at the end of a turn and while values are read or written outside of it.
  std::shared_mutex& values() { return values_; }

 private:
  std::mutex next_;
  std::mutex pipeline_;
  std::shared_mutex values_;
};

}  // namespace switchml::runtime
