// A lock around a state that data threads and control operations share.
#pragma once

#include <mutex>
#include <shared_mutex>

namespace switchml::runtime {

// Data threads and control operations take turns. The thread that holds `next_` has the next turn, so a data thread
// under load, which asks again at once, does not keep the others out. Between its turns a data thread may still work on
// data that no other thread touches (work_outside()); a control operation waits until no thread does so.
class Turns {
 public:
  // The turn of a data thread, which lasts as long as this object.
  class Data {
   public:
    explicit Data(Turns* turns) : lock_(turns->state_, std::defer_lock) {
      const std::lock_guard<std::mutex> next(turns->next_);
      lock_.lock();
    }

   private:
    std::unique_lock<std::mutex> lock_;
  };

  // The turn of a control operation: no other thread has a turn or works outside of one.
  class Control {
   public:
    explicit Control(Turns* turns) : turn_(turns), nobody_outside_(turns->outside_) {}

   private:
    Data turn_;
    std::unique_lock<std::shared_mutex> nobody_outside_;
  };

  // Call it at the end of a turn; the work may go on until the result is unlocked or destroyed.
  using Outside = std::shared_lock<std::shared_mutex>;
  Outside work_outside() { return Outside(outside_); }

 private:
  std::mutex next_;
  std::mutex state_;
  std::shared_mutex outside_;
};

}  // namespace switchml::runtime
