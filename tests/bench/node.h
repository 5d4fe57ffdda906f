// SPDX-License-Identifier: Apache-2.0
//
// A network namespace with kube-proxy's rules for a number of services, in which kubelet's are
// made, read, damaged and removed again.
#ifndef KIPT_TESTS_BENCH_NODE_H_
#define KIPT_TESTS_BENCH_NODE_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/loop/reconciler.h"
#include "agent/policy/policy.h"
#include "agent/process/command.h"
#include "netlink/backend.h"
#include "netlink/socket.h"
#include "tests/support/foreign_writer.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns.h"
#include "tests/support/private_run.h"

namespace kipt::testing {

// With the gate off: everything that a kubelet of 1.24 keeps, in both families: 16 chains and 19
// rules. With the gate on: what every kubelet keeps since 1.28.
inline constexpr KubeletForm kBenchKubelet = KubeletForm::k1_24;
inline constexpr KubeletForm kBenchKubeletGateOn = KubeletForm::k1_27GateOn;

// Puts kube-proxy's rules into the calling thread's namespace. None jumps to a chain of kubelet's,
// so that these can be removed, over and over.
absl::Status LoadBenchServices(IptablesMode mode, int services);
// Removes all of kubelet's chains and jumps, by one iptables-restore for each family.
absl::Status RemoveKubelets(IptablesMode mode, KubeletForm kubelet = kBenchKubelet);
// Kubelet's programs, one after the other, in both families. An error where it made something and
// was not to (`makes`), or the other way round.
absl::Status RunKubeletPrograms(IptablesMode mode, KubeletForm kubelet, bool makes);

class Node {
 public:
  // The calling thread is inside until its end.
  static absl::StatusOr<std::unique_ptr<Node>> Create(IptablesMode mode, int services);

  IptablesMode mode() const { return mode_; }
  int services() const { return services_; }
  // Only with nf_tables.
  ForeignWriter& other_program() { return *writer_; }

  // The agent's library: one check that must find everything, and one synchronisation that must
  // find something to do.
  absl::Status Check();
  absl::Status Repair();
  absl::Status PutInPlace();
  // Empties KUBE-POSTROUTING of IPv4.
  absl::Status DamagePostrouting();
  // What a check asks of nf_tables. Of the answers it reads only which chains exist.
  absl::Status AskForEverything();

 private:
  Node(IptablesMode mode, int services, Netns netns);
  absl::Status Open();

  const IptablesMode mode_;
  const int services_;
  Netns netns_;
  PrivateRun private_run_;
  InNetns inside_;
  std::unique_ptr<agent::CommandRunner> runner_;
  std::unique_ptr<netlink::Backend> backend_;
  std::unique_ptr<netlink::Socket> socket_;
  std::unique_ptr<ForeignWriter> writer_;
  std::optional<agent::Reconciler> reconciler_;
  const agent::PolicyInput desired_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_NODE_H_
