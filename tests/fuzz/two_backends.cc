// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/two_backends.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "agent/xtables/iptables_save.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary
using Chains = std::map<ChainId, ObservedChain>;

constexpr char kEmptyTables[] = "*mangle\nCOMMIT\n*filter\nCOMMIT\n*nat\nCOMMIT\n";

bool IsBase(const ChainId& chain) {
  return netlink::FindBaseChain(chain.table, chain.name) != nullptr;
}

absl::Status MustRun(const ProgramResult& result, absl::string_view what) {
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(what, " ended with ", result.exit_code, ": ", result.err));
}

Iptables IptablesOf(Family family, IptablesMode mode) {
  return {.family = family == Family::kIPv4 ? IpFamily::kIpv4 : IpFamily::kIpv6,
          .chroot_dir = {},
          .mode = mode};
}

// Built-in chains without rules are left out, as in Comparable().
ModelRuleset ModelOf(const Chains& chains, std::string& strange) {
  ModelRuleset model;
  for (const auto& [id, chain] : chains) {
    if (IsBase(id) && chain.rules.empty()) continue;
    if (IsBase(id) && !chain.hooked) absl::StrAppend(&strange, ToString(id), " has no hook\n");
    std::vector<netlink::Rule>& rules = model[id];
    for (const ObservedRule& rule : chain.rules) {
      if (rule.rule() != nullptr) {
        rules.push_back(*rule.rule());
      } else {
        absl::StrAppend(&strange, ToString(id), " has ", ToString(id.family, rule), "\n");
      }
    }
  }
  return model;
}

ModelRuleset WithoutBareChains(const ModelRuleset& model) {
  ModelRuleset result = model;
  for (auto chain = result.begin(); chain != result.end();) {
    chain = IsBase(chain->first) && chain->second.empty() ? result.erase(chain) : std::next(chain);
  }
  return result;
}

std::string Text(const ModelRuleset& model) {
  std::string text;
  for (const auto& [chain, rules] : model) {
    absl::StrAppend(&text, ToString(chain), "\n");
    for (const netlink::Rule& rule : rules) {
      absl::StrAppend(&text, "  ", ToString(chain.family, rule), "\n");
    }
  }
  return text;
}

std::string Difference(absl::string_view what, const std::string& a, const std::string& b) {
  return a == b ? "" : absl::StrCat(what, ":\n", a, "--- and ---\n", b);
}

// An edit as an operation on what `snapshot` has.
struct ToOperation {
  const Snapshot& snapshot;

  const ObservedRule& At(const ChainId& chain, size_t place) const {
    return snapshot.Find(chain)->rules.at(place);
  }
  Operation operator()(const MakeChain& edit) const { return netlink::CreateChain{edit.chain}; }
  Operation operator()(const RemoveChain& edit) const { return netlink::DeleteChain{edit.chain}; }
  Operation operator()(const PutRule& edit) const {
    netlink::AddRule add{.chain = edit.chain, .rule = edit.rule, .before = {}, .number = 0};
    // The number is corrected by the backend that goes by numbers (restore_plan.cc).
    if (edit.before) add.before = At(edit.chain, *edit.before).handle;
    if (edit.before) add.number = static_cast<int>(*edit.before) + 1;
    return add;
  }
  Operation operator()(const TakeRule& edit) const {
    const ObservedRule& rule = At(edit.chain, edit.place);
    return netlink::DeleteRule{.chain = edit.chain,
                               .handle = rule.handle,
                               .number = static_cast<int>(edit.place) + 1,
                               .rule = *rule.rule()};
  }
};

// The places are those before the transaction; what is put before one comes behind what was put
// there earlier.
struct FollowEdit {
  struct Entry {
    std::optional<size_t> place;  // none: put by this transaction
    netlink::Rule rule;
  };
  std::map<ChainId, std::vector<Entry>> chains;

  explicit FollowEdit(const ModelRuleset& model) {
    for (const auto& [chain, rules] : model) {
      std::vector<Entry>& entries = chains[chain];
      for (size_t i = 0; i < rules.size(); ++i) entries.push_back({i, rules[i]});
    }
  }
  static std::vector<Entry>::iterator Find(std::vector<Entry>& entries, size_t place) {
    return std::find_if(entries.begin(), entries.end(),
                        [&](const Entry& entry) { return entry.place == place; });
  }
  void operator()(const MakeChain& edit) { chains.try_emplace(edit.chain); }
  void operator()(const RemoveChain& edit) { chains.erase(edit.chain); }
  void operator()(const PutRule& edit) {
    std::vector<Entry>& entries = chains[edit.chain];
    entries.insert(edit.before ? Find(entries, *edit.before) : entries.end(), {{}, edit.rule});
  }
  void operator()(const TakeRule& edit) {
    std::vector<Entry>& entries = chains[edit.chain];
    entries.erase(Find(entries, edit.place));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<TwoBackends>> TwoBackends::Open() {
  std::unique_ptr<TwoBackends> both(new TwoBackends());
  both->lock_ =
      (std::filesystem::temp_directory_path() / absl::StrCat("kipt-fuzz-lock-", getpid())).string();
  // Of the programs that are run beside the backend.
  setenv("XTABLES_LOCKFILE", both->lock_.c_str(), 1);
  both->runner_ = agent::NewCommandRunner();
  auto nft = netlink::NewNftBackend();
  if (!nft.ok()) return nft.status();
  auto legacy = agent::NewIptablesLegacyBackend(both->runner_.get(), {.lock_path = both->lock_});
  if (!legacy.ok()) return legacy.status();
  both->backends_ = {*std::move(nft), *std::move(legacy)};
  if (absl::Status status = both->Flush(); !status.ok()) return status;
  return both;
}

TwoBackends::~TwoBackends() {
  std::error_code ignored;
  std::filesystem::remove(lock_, ignored);
  unsetenv("XTABLES_LOCKFILE");
}

absl::Status TwoBackends::Flush() {
  model_.clear();
  absl::Status status = MustRun(RunProgram({"nft", "flush", "ruleset"}), "nft flush ruleset");
  for (const Family family : netlink::kFamilies) {
    status.Update(MustRun(IptablesOf(family, IptablesMode::kLegacy).Replace(kEmptyTables),
                          "emptying the legacy tables"));
  }
  return status;
}

// All chains of the model, and those that it might have.
absl::StatusOr<Snapshot> TwoBackends::Read(Backend& backend) const {
  std::set<ChainId> chains;
  for (const auto& [chain, rules] : model_) {
    chains.insert(chain);
    for (const ChainId& target : JumpTargets(chain)) chains.insert(target);
  }
  std::vector<netlink::ChainQuery> queries;
  for (const ChainId& chain : chains) queries.push_back({.chain = chain});
  return backend.Read(queries);
}

absl::Status TwoBackends::ApplyTo(Backend& backend, const std::vector<Edit>& edits) const {
  const absl::StatusOr<Snapshot> snapshot = Read(backend);
  if (!snapshot.ok()) return snapshot.status();
  netlink::Transaction transaction{.generation = snapshot->generation};
  for (const Edit& edit : edits) {
    transaction.operations.push_back(std::visit(ToOperation{*snapshot}, edit));
  }
  return backend.Apply(transaction);
}

void TwoBackends::Follow(const std::vector<Edit>& edits) {
  FollowEdit follow(model_);
  for (const Edit& edit : edits) std::visit(follow, edit);
  model_.clear();
  for (const auto& [chain, entries] : follow.chains) {
    std::vector<netlink::Rule>& rules = model_[chain];
    for (const FollowEdit::Entry& entry : entries) rules.push_back(entry.rule);
  }
}

absl::Status TwoBackends::Apply(const std::vector<Edit>& edits) {
  for (const std::unique_ptr<Backend>& backend : backends_) {
    const absl::Status status = ApplyTo(*backend, edits);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(netlink::BackendKindName(backend->kind()),
                                                      ": ", status.message()));
    }
  }
  Follow(edits);
  return absl::OkStatus();
}

absl::StatusOr<std::string> TwoBackends::Disagreement() {
  const std::string model = Text(WithoutBareChains(model_));
  std::string found;
  for (const std::unique_ptr<Backend>& backend : backends_) {
    const absl::StatusOr<Snapshot> snapshot = Read(*backend);
    if (!snapshot.ok()) return snapshot.status();
    const std::string read = Text(ModelOf(snapshot->chains, found));
    found += Difference(
        absl::StrCat("the model and the reading of ", netlink::BackendKindName(backend->kind())),
        model, read);
  }
  Chains saved_chains;
  for (const Family family : netlink::kFamilies) {
    std::array<std::string, 2> saved;
    for (const IptablesMode mode : {IptablesMode::kNft, IptablesMode::kLegacy}) {
      const ProgramResult result = IptablesOf(family, mode).Save();
      if (absl::Status status = MustRun(result, "saving"); !status.ok()) return status;
      saved[mode == IptablesMode::kNft ? 0 : 1] = result.out;
    }
    found += Difference(absl::StrCat("the saves of nft and legacy, ", FamilyName(family)),
                        Comparable(saved[0]), Comparable(saved[1]));
    auto chains = agent::ParseSave(family, saved[0]);
    if (!chains.ok()) return chains.status();
    saved_chains.merge(*chains);
  }
  const std::string parsed = Text(ModelOf(saved_chains, found));
  return found + Difference("the model and what iptables-nft-save says", model, parsed);
}

std::string Comparable(const std::string& saved) {
  // By table, chain.
  std::map<std::pair<std::string, std::string>, std::string> chains;
  std::string table;
  for (const absl::string_view line : absl::StrSplit(saved, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (absl::StartsWith(line, "*")) {
      table = std::string(line);
    } else if (absl::StartsWith(line, ":") && words.size() > 1 && words[1] == "-") {
      chains.try_emplace({table, words[0].substr(1)});
    } else if (absl::StartsWith(line, "-A") && words.size() > 1) {
      absl::StrAppend(&chains[{table, words[1]}], line, "\n");
    }
  }
  std::string text;
  for (const auto& [chain, rules] : chains) {
    absl::StrAppend(&text, chain.first, " :", chain.second, "\n", rules);
  }
  return text;
}

}  // namespace kipt::testing
