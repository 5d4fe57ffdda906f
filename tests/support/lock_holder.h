// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_SUPPORT_LOCK_HOLDER_H_
#define KIPT_TESTS_SUPPORT_LOCK_HOLDER_H_

#include <sys/types.h>

#include <string>

#include "absl/time/time.h"

namespace kipt::testing {

// A process called lock-holder that holds the flock on `path`, which it makes, from the moment this
// is constructed: for `time`, or as long as this lives.
class LockHolder {
 public:
  LockHolder(const std::string& path, absl::Duration time);
  ~LockHolder();
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_LOCK_HOLDER_H_
