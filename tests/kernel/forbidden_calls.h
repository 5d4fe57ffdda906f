// SPDX-License-Identifier: Apache-2.0
//
// System calls that an agent without privileges must not get through. All of them are made so that
// nothing would happen to the machine if they did.
#ifndef KIPT_TESTS_KERNEL_FORBIDDEN_CALLS_H_
#define KIPT_TESTS_KERNEL_FORBIDDEN_CALLS_H_

#include <cstdint>
#include <string>

namespace kipt::testing {

// What keeps the agent from the calls.
enum class Guard : uint8_t {
  kCapabilities,  // those that it gave up, and no filter
  kFilter,        // the filter, and no capability was given up
};

class ForbiddenCalls {
 public:
  // Opens what the calls are made on, while that is allowed.
  explicit ForbiddenCalls(bool may_run_programs);
  ~ForbiddenCalls();
  ForbiddenCalls(const ForbiddenCalls&) = delete;
  ForbiddenCalls& operator=(const ForbiddenCalls&) = delete;

  // Every call that `guard` should refuse and that did not fail with EPERM or EACCES, with what it
  // did; empty where all did.
  std::string TryAll(Guard guard) const;

 private:
  bool may_run_programs_;
  int network_namespace_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_KERNEL_FORBIDDEN_CALLS_H_
