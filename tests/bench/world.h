// SPDX-License-Identifier: Apache-2.0
//
// One network namespace that holds kube-proxy's rules for a number of services, and in which
// kubelet's are made, looked at, damaged and removed again.
#ifndef KIPT_TESTS_BENCH_WORLD_H_
#define KIPT_TESTS_BENCH_WORLD_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/loop/reconciler.h"
#include "agent/policy/policy.h"
#include "agent/process/command.h"
#include "netlink/backend.h"
#include "tests/support/foreign_writer.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns.h"
#include "tests/support/private_run.h"

namespace kipt::testing {

// Everything that a kubelet of 1.24 keeps, in both families: 16 chains and 19 rules.
inline constexpr KubeletForm kBenchKubelet = KubeletForm::k1_24;

class World {
 public:
  // The calling thread is inside until the world's end.
  static absl::StatusOr<std::unique_ptr<World>> Create(IptablesMode mode, int services);

  IptablesMode mode() const { return mode_; }
  int services() const { return services_; }
  netlink::Backend& backend() { return *backend_; }
  // Only with nf_tables.
  ForeignWriter& somebody_else() { return *writer_; }

  // Somebody made or removed kubelet's rules, so that nobody knows any more what stands.
  void Forget() { standing_.reset(); }
  // The next two do nothing where that is known to be so already. Afterwards nf_tables has freed
  // what was deleted: who adds an xtables match sooner than that waits for it in the kernel.
  absl::Status PutInPlace();
  absl::Status Clean();
  // `chain` of ours goes, with its rules and the jumps to it; the rest is in place. Nobody waits.
  absl::Status Damage(const netlink::ChainId& chain);

  // The agent's own: one look that must find everything in place, and one synchronisation that must
  // find something to do.
  absl::Status Check();
  absl::Status Repair();

  // What was committed to nf_tables so far; legacy iptables does not count.
  absl::StatusOr<int64_t> Generation();
  void Settle() const;

 private:
  World(IptablesMode mode, int services, Netns netns);
  absl::Status Open();
  absl::Status Remove(absl::Span<const netlink::ChainId> chains);

  const IptablesMode mode_;
  const int services_;
  Netns netns_;
  PrivateRun private_run_;
  InNetns inside_;
  std::unique_ptr<agent::CommandRunner> runner_;
  std::unique_ptr<netlink::Backend> backend_;
  std::unique_ptr<ForeignWriter> writer_;
  std::optional<agent::Reconciler> reconciler_;
  const agent::PolicyInput desired_;
  std::optional<bool> standing_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_WORLD_H_
