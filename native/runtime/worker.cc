#include "native/runtime/worker.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

#include "native/runtime/short_slice.h"

namespace switchml::runtime {
namespace {

// Blocks all signals in this thread while it exists; a thread started then inherits the mask.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

void Worker::start(std::function<void()> body) {
  if (thread_.joinable()) return;
  stopping_.store(false, std::memory_order_relaxed);
  const SignalsBlocked blocked;  // signals belong to the interpreter's main thread
  thread_ = std::thread([body = std::move(body)] {
    ask_for_short_slices();
    body();
  });
  pthread_setname_np(thread_.native_handle(), name_.c_str());
}

void Worker::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  wake_event_.wake();
  thread_.join();
}

}  // namespace switchml::runtime
