// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_legacy_backend.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "agent/process/network_namespaces.h"
#include "agent/xtables/iptables_legacy_parts.h"
#include "agent/xtables/iptables_save.h"
#include "netlink/kernel_error.h"
#include "netlink/reach.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::ChainQuery;
using netlink::Family;
using netlink::Operation;
using netlink::Snapshot;
using netlink::Transaction;

// A lock file that no other process has: the kernel gives each process its own. Nothing has to be
// made or removed, and it works if every file system is read-only.
constexpr char kPrivateLock[] = "XTABLES_LOCKFILE=/proc/self/status";

constexpr absl::Duration kRetryPause = absl::Milliseconds(100);

// The rules of each family at one time; nothing for a family that was not read.
using Content = std::map<Family, Fingerprint>;

std::set<Family> FamiliesOf(const Transaction& transaction) {
  std::set<Family> families;
  for (const Operation& operation : transaction.operations) {
    families.insert(ChainOf(operation).family);
  }
  return families;
}

// The programs cannot be kept from taking the lock that others take.
bool TakesFixedLock(const IptablesVersion& version) {
  return version.RestoreTakesLock() && !version.LockIsMovable();
}

// What PlanRestore() needs.
SavedSelection SelectionFor(const Transaction& transaction) {
  SavedSelection selection;
  for (const Operation& operation : transaction.operations) {
    const ChainId& chain = ChainOf(operation);
    selection.chains.insert(chain);
    if (std::holds_alternative<netlink::DeleteChain>(operation)) selection.words.insert(chain.name);
    const auto* add = std::get_if<netlink::AddRule>(&operation);
    const auto* jump = add != nullptr ? std::get_if<netlink::Jump>(&add->rule.target) : nullptr;
    if (jump != nullptr) selection.chains.insert({chain.family, chain.table, jump->chain});
  }
  return selection;
}

// "mangle, filter", in the order in which they are written.
std::string TablesOf(const Transaction& transaction, Family family) {
  std::vector<std::string> tables;
  for (const Operation& operation : transaction.operations) {
    const ChainId& chain = ChainOf(operation);
    const std::string name(netlink::TableName(chain.table));
    if (chain.family == family && (tables.empty() || tables.back() != name)) tables.push_back(name);
  }
  return absl::StrJoin(tables, ", ");
}

// The rules of one family.
struct FamilyState {
  Fingerprint fingerprint;
  ObservedChains chains;
  // Those of `chains` that no query names.
  std::set<ChainId> followed = {};
};

// `work` for every family at the same time: nearly all of it is waiting for a program, and the
// kernel has a lock for each family. The threads are in the namespaces of this one, and end here.
template <typename Result, typename Work>
std::map<Family, Result> AtOnce(const std::set<Family>& families, const Work& work) {
  std::vector<std::pair<Family, std::future<Result>>> running;
  for (const Family family : families) {
    // The first one is done by this thread; the others too, if no thread can be made.
    const auto policy =
        running.empty() ? std::launch::deferred : std::launch::async | std::launch::deferred;
    running.emplace_back(family, std::async(policy, std::cref(work), family));
  }
  std::map<Family, Result> results;
  for (auto& [family, result] : running) results.emplace(family, result.get());
  return results;
}

class IptablesLegacyBackend : public netlink::Backend {
 public:
  IptablesLegacyBackend(CommandRunner* runner, IptablesLegacyOptions options)
      : runner_(runner), options_(std::move(options)), key_(RandomFingerprintKey()) {}

  absl::Status Open() {
    for (const Family family : netlink::kFamilies) {
      programs_.emplace(family, FindIptablesLegacyPrograms(*runner_, family, options_.directories));
    }
    absl::Status status = programs_.at(Family::kIPv4).status();
    status.Update(netns_.Check());
    return status;
  }

  netlink::BackendKind kind() const override { return netlink::BackendKind::kIptablesLegacy; }
  bool spans_families() const override { return false; }

  std::string caveat() const override {
    for (const auto& [family, programs] : programs_) {
      if (!programs.ok() || !TakesFixedLock(programs->version)) continue;
      return absl::StrCat(
          programs->restore, " is older than 1.8.7 and takes ", options_.lock_path,
          " itself: what another program writes in the milliseconds between the last "
          "look and the write is not seen; a newer iptables has no such window");
    }
    return "";
  }

  absl::StatusOr<Snapshot> Read(absl::Span<const ChainQuery> queries) override {
    if (absl::Status status = netns_.Check(); !status.ok()) return status;
    std::set<Family> families;
    std::set<ChainId> asked;
    SavedSelection selection;
    for (const ChainQuery& query : queries) {
      families.insert(query.chain.family);
      asked.insert(query.chain);
      if (query.with_rules) selection.chains.insert(query.chain);
    }
    // No query asks for the generation of everything.
    if (queries.empty()) families.insert(netlink::kFamilies.begin(), netlink::kFamilies.end());
    Snapshot snapshot;
    Content content;
    for (auto& [family, state] : ReadFamilies(families, selection, queries)) {
      if (!state.ok()) return state.status();
      content[family] = state->fingerprint;
      asked.merge(state->followed);
      for (auto& [id, chain] : state->chains) {
        if (asked.count(id) != 0) snapshot.chains.emplace(id, std::move(chain));
      }
    }
    snapshot.generation = NumberOf(content);
    return snapshot;
  }

  absl::StatusOr<netlink::Survey> TakeSurvey(const netlink::SurveyFilter& keep) override {
    if (absl::Status status = netns_.Check(); !status.ok()) return status;
    const absl::string_view name = netlink::BackendKindName(kind());
    netlink::Survey survey = {.mode = std::string(name), .generation = 0, .tables = {}};
    Content content;
    for (const auto& [family, text] :
         AtOnce<absl::StatusOr<std::string>>({netlink::kFamilies.begin(), netlink::kFamilies.end()},
                                             [this](Family each) { return Save(each); })) {
      if (!text.ok()) return text.status();
      content[family] = FingerprintSaved(key_, *text);
      // One family after the other: `keep` need not allow calls from two threads.
      absl::StatusOr<netlink::Survey> of_family = ParseSurvey(name, family, *text, keep);
      if (!of_family.ok()) return of_family.status();
      survey.tables.merge(of_family->tables);
    }
    survey.generation = NumberOf(content);
    return survey;
  }

  // iptables has no native tables.
  absl::StatusOr<netlink::NativeReading> ReadNativeTable(
      const netlink::NativeTable& /*table*/) override {
    return netlink::NativeReading{.generation = last_read_, .table = std::nullopt};
  }

  absl::Status Apply(const Transaction& transaction) override {
    if (transaction.empty()) return absl::OkStatus();
    if (absl::Status status = netns_.Check(); !status.ok()) return status;
    const auto content = contents_.find(transaction.generation);
    if (content == contents_.end()) {
      return absl::AbortedError(
          "the transaction's generation is none that was read lately; nothing was done");
    }
    const std::set<Family> families = FamiliesOf(transaction);
    const absl::StatusOr<std::optional<XtablesLock>> lock = Lock(families);
    if (!lock.ok()) return Annotated(lock.status(), "; nothing was done");
    const absl::StatusOr<Transaction> plan = Check(transaction, content->second, families);
    if (!plan.ok()) return plan.status();
    const std::map<Family, absl::Status> written =
        AtOnce<absl::Status>(families, [&](Family family) {
          return Write(*plan, family, content->second.at(family), lock->has_value());
        });
    std::string done;
    absl::Status status;
    for (const auto& [family, result] : written) {
      if (result.ok()) absl::StrAppend(&done, "; ", netlink::FamilyName(family), ": done");
      if (status.ok()) {
        status = result;
      } else if (!result.ok()) {
        status = Annotated(status, absl::StrCat("; ", result.message()));
      }
    }
    return status.ok() ? status : Annotated(status, done);
  }

  // The kernel reports no changes of these tables, so there is only one way to watch them.
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode /*mode*/) override {
    if (absl::Status status = netns_.Check(); !status.ok()) return status;
    return NewIptablesLegacyMonitor(options_.lock_path, options_.table_names_path);
  }

 private:
  absl::StatusOr<std::string> Save(Family family) {
    return SaveIptablesLegacyTables(family, *runner_, programs_.at(family), options_);
  }

  // iptables-legacy has no generations: each content has a number, from 1. One that comes back has
  // its number again, if it is among the last ones seen; only these can still be current.
  uint32_t NumberOf(const Content& content) {
    const auto known = std::find_if(contents_.begin(), contents_.end(),
                                    [&](const auto& each) { return each.second == content; });
    if (known != contents_.end()) return last_read_ = known->first;
    contents_.emplace(++last_number_, content);
    if (contents_.size() > 16) contents_.erase(contents_.begin());
    return last_read_ = last_number_;
  }

  // The chains of `family`, and the rules of those that are selected.
  absl::StatusOr<FamilyState> ReadFamily(Family family, const SavedSelection& selection,
                                         absl::Span<const ChainQuery> queries) {
    const absl::StatusOr<std::string> text = Save(family);
    if (!text.ok()) return text.status();
    // Strict about everything except rules that are not selected: a text that is cut off is no
    // answer.
    absl::StatusOr<ObservedChains> chains =
        ParseSave(family, SelectSaved(*text, family, selection));
    if (!chains.ok()) return chains.status();
    FamilyState state{.fingerprint = FingerprintSaved(key_, *text), .chains = *std::move(chains)};
    std::set<ChainId> read = selection.chains;
    for (;;) {
      const std::set<ChainId> more = netlink::ChainsOnTheWay(state.chains, queries, read);
      if (more.empty()) return state;
      absl::StatusOr<ObservedChains> followed =
          ParseSave(family, SelectSaved(*text, family, {.chains = more, .words = {}}));
      if (!followed.ok()) return followed.status();
      for (const ChainId& id : more) {
        const auto chain = followed->find(id);
        if (chain != followed->end()) state.chains[id] = std::move(chain->second);
        read.insert(id);
        state.followed.insert(id);
      }
    }
  }

  std::map<Family, absl::StatusOr<FamilyState>> ReadFamilies(
      const std::set<Family>& families, const SavedSelection& selection,
      absl::Span<const ChainQuery> queries = {}) {
    return AtOnce<absl::StatusOr<FamilyState>>(
        families, [&](Family family) { return ReadFamily(family, selection, queries); });
  }

  // Ours, where the programs can be kept from taking it, too. Else none.
  absl::StatusOr<std::optional<XtablesLock>> Lock(const std::set<Family>& families) {
    for (const Family family : families) {
      const absl::StatusOr<IptablesLegacyPrograms>& programs = programs_.at(family);
      if (!programs.ok()) return programs.status();
      if (TakesFixedLock(programs->version)) return std::optional<XtablesLock>();
    }
    const auto start = std::chrono::steady_clock::now();
    absl::StatusOr<XtablesLock> lock = XtablesLock::Acquire(options_.lock_path, options_.lock_wait);
    if (options_.lock_waited) {
      options_.lock_waited(absl::FromChrono(std::chrono::steady_clock::now() - start));
    }
    if (!lock.ok()) return lock.status();
    return std::optional<XtablesLock>(*std::move(lock));
  }

  // The transaction as it is written, if the rules that it was made from are unchanged and all of
  // it can be done.
  absl::StatusOr<Transaction> Check(const Transaction& transaction, const Content& content,
                                    const std::set<Family>& families) {
    const SavedSelection selection = SelectionFor(transaction);
    ObservedChains state;
    bool random_fully = true;
    for (auto& [family, now] : ReadFamilies(families, selection)) {
      const auto before = content.find(family);
      if (before == content.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            netlink::FamilyName(family), " was not read at the transaction's generation"));
      }
      if (!now.ok()) return now.status();
      if (now->fingerprint != before->second) {
        return absl::AbortedError(
            absl::StrCat("the rules of ", netlink::FamilyName(family),
                         " have changed since they were read; nothing was done"));
      }
      state.merge(now->chains);
      random_fully = random_fully && programs_.at(family)->version.HasRandomFully();
    }
    return PlanRestore(std::move(state), transaction, random_fully);
  }

  // Runs iptables-legacy-restore, again where it reported a resource and nothing has moved.
  absl::Status Write(const Transaction& plan, Family family, const Fingerprint& before,
                     bool locked) {
    if (FamiliesOf(plan).count(family) == 0) return absl::OkStatus();
    const std::string what =
        absl::StrCat("writing ", netlink::FamilyName(family), " ", TablesOf(plan, family));
    const CommandRequest request = RestoreRequest(plan, family, locked);
    const auto start = std::chrono::steady_clock::now();
    absl::StatusOr<CommandResult> result = runner_->Run(request);
    while (result.ok() && result->exit_code == kXtablesResourceProblem &&
           absl::FromChrono(std::chrono::steady_clock::now() - start) < options_.lock_wait &&
           Stands(family, before)) {
      absl::SleepFor(Jittered(kRetryPause));
      result = runner_->Run(request);
    }
    if (result.ok() && result->exit_code == 0) return absl::OkStatus();
    std::string more = WhatIsDone(plan, family, before);
    if (!result.ok()) return Annotated(result.status(), absl::StrCat(" while ", what, more));
    if (result->exit_code == kXtablesResourceProblem && !locked) {
      more = absl::StrCat("; the lock ", options_.lock_path, ": ",
                          DescribeXtablesLockHolder(options_.lock_path), more);
    }
    absl::Status failure =
        IptablesLegacyFailure(what, request.program, *result, options_.thread_status_path);
    if (AddsConnLabel(plan, family)) {
      NoteMissingMatch(netlink::kConnLabelExtension, *result,
                       PathOfFamily(options_.match_names_path, family), failure);
    }
    return Annotated(failure, more);
  }

  CommandRequest RestoreRequest(const Transaction& plan, Family family, bool locked) const {
    const IptablesLegacyPrograms& programs = *programs_.at(family);
    CommandRequest request{.program = programs.restore,
                           .arguments = {"--noflush"},
                           .input = RestoreText(plan, family),
                           .environment = IptablesLegacyEnvironment(),
                           .deadline = options_.command_deadline,
                           .output_limit = options_.output_limit};
    if (locked) {
      request.environment.emplace_back(kPrivateLock);
    } else {
      for (std::string& word : RestoreWaitArguments(programs.version, options_.lock_wait)) {
        request.arguments.push_back(std::move(word));
      }
    }
    return request;
  }

  // False, too, where that cannot be read.
  bool Stands(Family family, const Fingerprint& content) {
    const absl::StatusOr<std::string> text = Save(family);
    return text.ok() && FingerprintSaved(key_, *text) == content;
  }

  // For a message, after a failure: each table is written whole or not at all.
  std::string WhatIsDone(const Transaction& plan, Family family, const Fingerprint& before) {
    const absl::string_view name = netlink::FamilyName(family);
    if (Stands(family, before)) return absl::StrCat("; ", name, ": nothing was done");
    return absl::StrCat("; ", name, ": of the tables ", TablesOf(plan, family),
                        ", in this order, the first may be done, each whole: read again");
  }

  CommandRunner* runner_;
  IptablesLegacyOptions options_;
  FingerprintKey key_;
  NetnsGuard netns_;
  std::map<Family, absl::StatusOr<IptablesLegacyPrograms>> programs_;
  std::map<uint32_t, Content> contents_;
  uint32_t last_number_ = 0;  // of contents_
  uint32_t last_read_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<netlink::Backend>> NewIptablesLegacyBackend(
    CommandRunner* runner, IptablesLegacyOptions options) {
  auto backend = std::make_unique<IptablesLegacyBackend>(runner, std::move(options));
  if (absl::Status status = backend->Open(); !status.ok()) return status;
  return backend;
}

}  // namespace kipt::agent
