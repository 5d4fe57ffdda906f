// SPDX-License-Identifier: Apache-2.0
//
// How long tests wait. An emulated machine takes minutes for what takes seconds elsewhere.
#ifndef KIPT_TESTS_SUPPORT_PATIENCE_H_
#define KIPT_TESTS_SUPPORT_PATIENCE_H_

#include <cstdlib>

#include "absl/time/time.h"

namespace kipt::testing {

// `usual`, multiplied by the environment's KIPT_TEST_PATIENCE if that is a number above 1.
inline absl::Duration Patient(absl::Duration usual) {
  const char* text = std::getenv("KIPT_TEST_PATIENCE");
  const double factor = text == nullptr ? 1 : std::atof(text);
  return factor > 1 ? usual * factor : usual;
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_PATIENCE_H_
