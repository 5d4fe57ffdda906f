// SPDX-License-Identifier: Apache-2.0
//
// Many may pass at once, or one alone. std::shared_mutex lets those who share starve the one who
// waits alone; here whoever comes first goes first.
#ifndef KIPT_TESTS_SOAK_GATE_H_
#define KIPT_TESTS_SOAK_GATE_H_

#include <mutex>
#include <shared_mutex>

namespace kipt::soak {

class Gate {
 public:
  void lock() {
    const std::lock_guard<std::mutex> turn(turnstile_);
    inside_.lock();
  }
  void unlock() { inside_.unlock(); }
  void lock_shared() {
    const std::lock_guard<std::mutex> turn(turnstile_);
    inside_.lock_shared();
  }
  void unlock_shared() { inside_.unlock_shared(); }

 private:
  std::mutex turnstile_;
  std::shared_mutex inside_;
};

using Shared = std::shared_lock<Gate>;
using Alone = std::unique_lock<Gate>;

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_GATE_H_
