// SPDX-License-Identifier: Apache-2.0
//
// A kernel in memory that implements the Backend interface. It has semantics: what nf_tables
// refuses it refuses with the same status code, a transaction applies whole or not at all, and the
// generation moves only when something changed. tests/kernel/backend_contract_test.cc holds it to
// the kernel.
#ifndef KIPT_TESTS_SUPPORT_FAKE_BACKEND_H_
#define KIPT_TESTS_SUPPORT_FAKE_BACKEND_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::testing {

// `table` in the kernel; `altered` and `counters` as in ObservedNativeTable.
struct HeldNativeTable {
  netlink::NativeTable table;
  bool altered = false;
  netlink::RuleCounters counters = {};
};

struct FakeRuleset {
  // Everything, rules of all chains included.
  netlink::Snapshot snapshot{.generation = 1, .chains = {}};
  std::map<std::pair<netlink::Family, std::string>, HeldNativeTable> native;
  netlink::RuleHandle next_handle = 1;
  // Whether the kernel has xtables' matches and targets.
  bool has_xt = true;
  // Of those that it has: which it lacks all the same ("connlabel").
  std::set<std::string> missing_extensions;
};

// ObservedRule::xt, as nf_tables has it.
bool IsXt(const netlink::ObservedRule& rule);

// Applies all of it to `ruleset`, which is a copy: on an error it is half done. The generation
// moves when something changed.
//
// Errors as Backend::Apply has them.
absl::Status ApplyTransaction(const netlink::Transaction& transaction, FakeRuleset& ruleset);

class FakeBackend : public netlink::Backend {
 public:
  using Content = std::variant<netlink::Rule, netlink::OpaqueRule>;

  explicit FakeBackend(netlink::BackendKind kind = netlink::BackendKind::kNft) : kind_(kind) {}

  netlink::BackendKind kind() const override { return kind_; }
  using netlink::Backend::Read;
  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery> queries,
                                         const netlink::NativeTable* native) override;
  // Tables that hold a chain; a base chain's policy is ACCEPT.
  absl::StatusOr<netlink::Survey> TakeSurvey(const netlink::SurveyFilter& keep) override;
  absl::Status Apply(const netlink::Transaction& transaction) override;
  // As nf_tables does: a new monitor takes the place of the one before, whose Drain fails.
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode mode) override;

  // ---- another, unrestricted writer; each call is one commit ----

  // `hooked` is for names of base chains: false makes the plain chain that no packet reaches.
  void AddChain(const netlink::ChainId& chain, bool hooked = true);
  // Makes the chain where it is missing, and returns the new rule's handle. `first`: inserted.
  netlink::RuleHandle AppendRule(const netlink::ChainId& chain, Content content,
                                 bool first = false);
  void RemoveRule(const netlink::ChainId& chain, netlink::RuleHandle handle);
  // With its rules; rules that jump to it stay, as after `iptables-legacy -X` by hand.
  void RemoveChain(const netlink::ChainId& chain);
  // `nft add table FAMILY TABLE '{ flags dormant; }'`.
  void MakeDormant(netlink::Family family, netlink::Table table);
  // `nft flush ruleset`.
  void Clear();
  void PutNativeTable(HeldNativeTable table);
  void RemoveNativeTable(netlink::Family family, const std::string& name);
  // From now on the kernel has no nft_compat: rules with a match of xtables', or a target, are
  // refused, and existing ones stay.
  void LoseXt() { ruleset_.has_xt = false; }
  // The same of one match or target alone ("connlabel").
  void LoseExtension(const std::string& name) { ruleset_.missing_extensions.insert(name); }
  void GainExtension(const std::string& name) { ruleset_.missing_extensions.erase(name); }
  // A commit to something that is not ours: only the generation moves.
  void Touch();
  // The process that monitors report for the next commits. Until then: a PID that no process can
  // have (PID_MAX_LIMIT is below), and "another-writer".
  void ActAs(uint32_t pid, std::string command);

  // ---- faults ----

  // The next calls fail with these, in order, before they do anything.
  void FailNextRead(absl::Status status) { read_faults_.push_back(std::move(status)); }
  void FailNextSurvey(absl::Status status) { survey_faults_.push_back(std::move(status)); }
  void FailNextApply(absl::Status status) { apply_faults_.push_back(std::move(status)); }
  void FailNextWatch(absl::Status status) { watch_faults_.push_back(std::move(status)); }
  // Also makes the monitor readable, so that Drain is called.
  void FailNextDrain(absl::Status status);
  // `other_writer` runs once, after the next Read that succeeds: the transaction made from that
  // Read finds a ruleset that has moved. Several run after one Read each.
  void AfterNextRead(std::function<void(FakeBackend&)> other_writer) {
    other_writers_.push_back(std::move(other_writer));
  }

  // ---- what happened ----

  // Everything, rules of all chains included.
  const netlink::Snapshot& state() const { return ruleset_.snapshot; }
  // Transactions that were applied, empty ones left out.
  const std::vector<netlink::Transaction>& applied() const { return applied_; }
  int read_count() const { return read_count_; }
  int apply_count() const { return apply_count_; }

 private:
  class FakeMonitor;

  // Adds to `snapshot` what ChainQuery::follow asks for.
  void Follow(absl::Span<const netlink::ChainQuery> queries, netlink::Snapshot& snapshot) const;

  netlink::BackendKind kind_;
  FakeRuleset ruleset_;
  std::deque<absl::Status> read_faults_;
  std::deque<absl::Status> survey_faults_;
  std::deque<absl::Status> apply_faults_;
  std::deque<absl::Status> watch_faults_;
  std::deque<absl::Status> drain_faults_;
  netlink::RulesetChange writer_{.pid = 4'194'305, .command = "another-writer"};
  FakeMonitor* monitor_ = nullptr;
  std::deque<std::function<void(FakeBackend&)>> other_writers_;
  std::vector<netlink::Transaction> applied_;
  int read_count_ = 0;
  int apply_count_ = 0;
};

// As iptables-save would print it; see ToString(Snapshot).
std::string ToString(const FakeBackend& backend);

}  // namespace kipt::testing

// Tests name these without a namespace.
namespace kipt {
using testing::FakeBackend;
}  // namespace kipt

#endif  // KIPT_TESTS_SUPPORT_FAKE_BACKEND_H_
