// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_FUZZ_CONFIG_TEXT_H_
#define KIPT_TESTS_FUZZ_CONFIG_TEXT_H_

#include "absl/status/statusor.h"
#include "agent/config/config.h"

namespace kipt::testing {

// LoadConfig where no file but that of the flags is read, and IPv6 is there. Checks what every
// effective configuration promises: values in their ranges.
absl::StatusOr<agent::Config> LoadAndCheck(const agent::Flags& flags);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_CONFIG_TEXT_H_
