// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/world.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "netlink/backend.h"
#include "tests/bench/service_rules.h"
#include "tests/support/observed.h"

namespace kipt::testing {
namespace {

using netlink::ChainId;

// An RCU grace period and the kernel's worker that frees rules.
constexpr absl::Duration kSettling = absl::Milliseconds(60);

// Not KUBE-MARK-MASQ, which kube-proxy's rules jump to: a chain that is jumped to cannot be
// removed, and everything of kubelet's must be, over and over.
constexpr char kProxyMark[] = "KUBE-PROXY-MARK";

// Deletes, from the last to the first, so that the numbers of those before stay right.
void DeleteRules(const ChainId& chain, const std::vector<netlink::ObservedRule>& rules,
                 const std::set<std::string>* only_jumps_to,
                 std::vector<netlink::Operation>& operations) {
  for (size_t i = rules.size(); i-- > 0;) {
    const std::string* target = netlink::JumpTarget(rules[i]);
    if (only_jumps_to != nullptr && (target == nullptr || !only_jumps_to->contains(*target))) {
      continue;
    }
    // nft's native rules are no Rule; the kernel goes by the handle.
    const netlink::Rule* rule = rules[i].rule();
    operations.emplace_back(netlink::DeleteRule{.chain = chain,
                                                .handle = rules[i].handle,
                                                .number = static_cast<int>(i) + 1,
                                                .rule = rule != nullptr ? *rule : netlink::Rule{}});
  }
}

}  // namespace

World::World(IptablesMode mode, int services, Netns netns)
    : mode_(mode),
      services_(services),
      netns_(std::move(netns)),
      inside_(netns_),
      runner_(agent::NewCommandRunner()),
      desired_(::kipt::testing::Wanting(agent::Mode::kLegacy, netlink::kFamilies, {})) {}

absl::StatusOr<std::unique_ptr<World>> World::Create(IptablesMode mode, int services) {
  absl::StatusOr<Netns> netns = Netns::Create();
  if (!netns.ok()) return netns.status();
  std::unique_ptr<World> world(new World(mode, services, *std::move(netns)));
  if (absl::Status status = LoadServices(mode, services, kProxyMark); !status.ok()) return status;
  if (absl::Status status = world->Open(); !status.ok()) return status;
  // Tables and base chains stand from now on, as they do on every node.
  for (const auto step : {&World::PutInPlace, &World::Clean}) {
    if (absl::Status status = (world.get()->*step)(); !status.ok()) return status;
  }
  return world;
}

absl::Status World::Open() {
  absl::StatusOr<std::unique_ptr<netlink::Backend>> backend =
      mode_ == IptablesMode::kNft ? netlink::NewNftBackend()
                                  : agent::NewIptablesLegacyBackend(runner_.get());
  if (!backend.ok()) return backend.status();
  backend_ = *std::move(backend);
  reconciler_.emplace(backend_.get(), agent::SteadyClock());
  if (mode_ == IptablesMode::kLegacy) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<ForeignWriter>> writer = ForeignWriter::Create();
  if (!writer.ok()) return writer.status();
  writer_ = *std::move(writer);
  return absl::OkStatus();
}

void World::Settle() const {
  if (mode_ == IptablesMode::kNft) absl::SleepFor(kSettling);
}

absl::Status World::PutInPlace() {
  if (standing_ == true) return absl::OkStatus();
  const agent::SyncReport report = reconciler_->Sync(desired_);
  if (absl::Status status = report.FirstError(); !status.ok()) return status;
  standing_ = true;
  Settle();
  return absl::OkStatus();
}

absl::Status World::Clean() {
  if (standing_ == false) return absl::OkStatus();
  std::vector<ChainId> chains;
  for (const agent::DesiredChain& chain : agent::DesiredRuleset(desired_).chains)
    chains.push_back(chain.id);
  if (absl::Status status = Remove(chains); !status.ok()) return status;
  standing_ = false;
  Settle();
  return absl::OkStatus();
}

absl::Status World::Damage(const ChainId& chain) {
  if (absl::Status status = PutInPlace(); !status.ok()) return status;
  standing_.reset();
  return Remove({&chain, 1});
}

absl::Status World::Remove(absl::Span<const ChainId> chains) {
  std::vector<netlink::ChainQuery> queries;
  for (const ChainId& chain : chains) queries.push_back({chain});
  for (const agent::DesiredJump& jump : agent::DesiredRuleset(desired_).jumps)
    queries.push_back({jump.base_chain});
  const absl::StatusOr<netlink::Snapshot> snapshot = backend_->Read(queries);
  if (!snapshot.ok()) return snapshot.status();
  netlink::Transaction transaction{.generation = snapshot->generation};
  std::vector<netlink::Operation>& operations = transaction.operations;
  std::set<ChainId> base_chains;
  for (const agent::DesiredJump& jump : agent::DesiredRuleset(desired_).jumps)
    base_chains.insert(jump.base_chain);
  for (const ChainId& base : base_chains) {
    std::set<std::string> targets;
    for (const ChainId& chain : chains) {
      if (chain.family == base.family && chain.table == base.table) targets.insert(chain.name);
    }
    const netlink::ObservedChain* found = snapshot->Find(base);
    if (found != nullptr) DeleteRules(base, found->rules, &targets, operations);
  }
  for (const ChainId& chain : chains) {
    const netlink::ObservedChain* found = snapshot->Find(chain);
    if (found == nullptr) continue;
    DeleteRules(chain, found->rules, nullptr, operations);
    operations.emplace_back(netlink::DeleteChain{chain});
  }
  return backend_->Apply(transaction);
}

absl::Status World::Check() {
  const absl::StatusOr<agent::Plan> plan = reconciler_->Check(desired_);
  if (!plan.ok()) return plan.status();
  if (plan->diff.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("not in place: ", plan->diff.changes.size(), " changes, ",
                                          plan->diff.changes.front().reason));
}

absl::Status World::Repair() {
  const agent::SyncReport report = reconciler_->Sync(desired_);
  if (absl::Status status = report.FirstError(); !status.ok()) return status;
  if (!report.applied.empty()) return absl::OkStatus();
  return absl::InternalError("there was nothing to repair");
}

absl::StatusOr<int64_t> World::Generation() {
  if (mode_ == IptablesMode::kLegacy) return 0;
  const absl::StatusOr<netlink::Snapshot> now = backend_->Read({});
  if (!now.ok()) return now.status();
  return now->generation;
}

}  // namespace kipt::testing
