// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/two_backends.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "agent/xtables/iptables_save.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

constexpr char kEmptyTables[] = "*mangle\nCOMMIT\n*filter\nCOMMIT\n*nat\nCOMMIT\n";

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

// The chains that the model has. Any others are in the saves.
absl::StatusOr<Snapshot> ReadModelled(Backend& backend, const Snapshot& model) {
  std::vector<ChainQuery> queries;
  for (const auto& [id, chain] : model.chains) queries.push_back({.chain = id});
  return backend.Read(queries);
}

std::string Text(const std::map<ChainId, ObservedChain>& chains) {
  std::string text;
  for (const auto& [id, chain] : chains) {
    const bool base = IsBaseChain(id);
    if (base && chain.rules.empty()) continue;
    absl::StrAppend(&text, ToString(id), base && !chain.hooked ? " has no hook\n" : "\n");
    for (const ObservedRule& rule : chain.rules) {
      absl::StrAppend(&text, rule.rule() == nullptr ? "  not ours: " : "  ",
                      ToString(id.family, rule), "\n");
    }
  }
  return text;
}

std::string Difference(absl::string_view what, const std::string& a, const std::string& b) {
  return a == b ? "" : absl::StrCat(what, ":\n", a, "--- and ---\n", b);
}

// The user chains and the rules, each with its table. The order of the rules is not in it: what is
// parsed of a save has that.
std::string Comparable(const std::string& saved) {
  std::vector<std::string> lines;
  std::string table;
  for (const absl::string_view line : absl::StrSplit(saved, '\n')) {
    const bool user_chain = absl::StartsWith(line, ":") && absl::StrContains(line, " - ");
    if (absl::StartsWith(line, "*")) table = std::string(line);
    if (user_chain || absl::StartsWith(line, "-A")) lines.push_back(absl::StrCat(table, " ", line));
  }
  std::sort(lines.begin(), lines.end());
  return absl::StrJoin(lines, "\n");
}

// The same operation on what is at the same places in `snapshot`.
Operation Translated(Operation operation, const Snapshot& model, const Snapshot& snapshot) {
  const auto translate = [&](const ChainId& chain, RuleHandle& handle) {
    const std::vector<ObservedRule>& rules = model.Find(chain)->rules;
    const auto found = std::find_if(rules.begin(), rules.end(),
                                    [&](const auto& rule) { return rule.handle == handle; });
    handle = snapshot.Find(chain)->rules.at(static_cast<size_t>(found - rules.begin())).handle;
  };
  auto* add = std::get_if<AddRule>(&operation);
  if (add != nullptr && add->before) translate(add->chain, *add->before);
  if (auto* remove = std::get_if<DeleteRule>(&operation)) translate(remove->chain, remove->handle);
  return operation;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TwoBackends>> TwoBackends::Open() {
  std::unique_ptr<TwoBackends> both(new TwoBackends());
  both->lock_ =
      (std::filesystem::temp_directory_path() / absl::StrCat("kipt-fuzz-lock-", getpid())).string();
  // For the programs that run next to the backend.
  setenv("XTABLES_LOCKFILE", both->lock_.c_str(), 1);
  both->runner_ = agent::NewCommandRunner();
  auto nft = NewNftBackend();
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
  model_.Clear();
  absl::Status status = MustRun(RunProgram({"nft", "flush", "ruleset"}), "nft flush ruleset");
  for (const Family family : kFamilies) {
    status.Update(MustRun(IptablesOf(family, IptablesMode::kLegacy).Replace(kEmptyTables),
                          "emptying the legacy tables"));
  }
  return status;
}

absl::Status TwoBackends::Apply(const std::vector<Operation>& operations) {
  for (Backend* backend :
       {backends_[0].get(), backends_[1].get(), static_cast<Backend*>(&model_)}) {
    const absl::StatusOr<Snapshot> snapshot = ReadModelled(*backend, model());
    if (!snapshot.ok()) return snapshot.status();
    Transaction transaction{.generation = snapshot->generation};
    for (const Operation& operation : operations) {
      transaction.operations.push_back(Translated(operation, model(), *snapshot));
    }
    const absl::Status status = backend->Apply(transaction);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(backend == &model_ ? "the model, as " : "",
                                       BackendKindName(backend->kind()), ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TwoBackends::Disagreement() {
  const std::string expected = Text(model().chains);
  std::string found;
  for (const std::unique_ptr<Backend>& backend : backends_) {
    const absl::StatusOr<Snapshot> snapshot = ReadModelled(*backend, model());
    if (!snapshot.ok()) return snapshot.status();
    found +=
        Difference(absl::StrCat("the model and the reading of ", BackendKindName(backend->kind())),
                   expected, Text(snapshot->chains));
  }
  std::map<ChainId, ObservedChain> saved_chains;
  for (const Family family : kFamilies) {
    const ProgramResult nft = IptablesOf(family, IptablesMode::kNft).Save();
    const ProgramResult legacy = IptablesOf(family, IptablesMode::kLegacy).Save();
    absl::Status status = MustRun(nft, "saving nft");
    status.Update(MustRun(legacy, "saving legacy"));
    if (!status.ok()) return status;
    found += Difference(absl::StrCat("the saves of nft and legacy, ", FamilyName(family)),
                        Comparable(nft.out), Comparable(legacy.out));
    auto chains = agent::ParseSave(family, nft.out);
    if (!chains.ok()) return chains.status();
    saved_chains.merge(*chains);
  }
  return found + Difference("the model and iptables-nft-save", expected, Text(saved_chains));
}

}  // namespace kipt::testing
