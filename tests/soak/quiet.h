// SPDX-License-Identifier: Apache-2.0
//
// Quiet moments: the writers pause, and everything must be in place.
#ifndef KIPT_TESTS_SOAK_QUIET_H_
#define KIPT_TESTS_SOAK_QUIET_H_

#include <vector>

#include "absl/time/time.h"
#include "tests/soak/daemon.h"
#include "tests/soak/golden.h"
#include "tests/soak/node.h"

namespace kipt::soak {

// One comparison during a quiet moment.
struct QuietLook {
  Lines differences = {};
  bool ready = true;
  bool cleanup = false;
  // Since the quiet moment began.
  absl::Duration after = {};
};
enum class QuietVerdict { kInPlace, kNotYet, kTooLate };
// `quiet_bound` is for what must exist. In cleanup mode, what only has to be removed may take five
// times as long.
absl::Duration QuietBoundOf(const QuietLook& look, absl::Duration quiet_bound);
QuietVerdict JudgeQuiet(const QuietLook& look, absl::Duration quiet_bound);

class QuietMoments {
 public:
  QuietMoments(Node& node, const Daemon& daemon) : node_(node), daemon_(daemon), golden_(node) {}

  // Makes one: no writer acts, what others have taken from kube-proxy and users is back, the daemon
  // runs. Then, within the bound, the rules equal the golden ones and the ledger, and the daemon is
  // ready.
  void Make();
  // How long it took, each time.
  const std::vector<absl::Duration>& took() const { return took_; }

 private:
  // Everybody has put back what is theirs; both gates are this thread's then.
  bool OwnersAreDone(Alone& settings, Alone& foreign);
  void ExpectInPlace();

  Node& node_;
  const Daemon& daemon_;
  Golden golden_;
  std::vector<absl::Duration> took_;
};

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_QUIET_H_
