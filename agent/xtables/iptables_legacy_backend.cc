// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_legacy_backend.h"

#include <chrono>
#include <cstdint>
#include <future>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "agent/process/network_namespaces.h"
#include "agent/process/signal_mask.h"
#include "agent/xtables/conn_label_names.h"
#include "agent/xtables/iptables_legacy_monitor.h"
#include "agent/xtables/iptables_legacy_programs.h"
#include "agent/xtables/iptables_save.h"
#include "agent/xtables/last_reading.h"
#include "agent/xtables/restore_plan.h"
#include "agent/xtables/saved_survey.h"
#include "agent/xtables/xtables_lock.h"
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

// The hashes of the tables that exist, by name (SavedTable).
using TableHashes = std::map<std::string, size_t>;
// The tables of each family that was read.
using Content = std::map<Family, TableHashes>;

TableHashes HashesOf(const std::vector<SavedTable>& tables) {
  TableHashes hashes;
  for (const SavedTable& table : tables) hashes[std::string(table.name)] = absl::HashOf(table);
  return hashes;
}

// What a transaction is to write in one family, and what the rules must be before.
struct FamilyWrite {
  // In the order in which they are written.
  std::vector<std::string> tables = {};
  // The one table that is read again before. Empty: all are.
  std::string only = {};
  // The hashes of what is read again, as of the transaction.
  TableHashes before = {};
};

std::map<Family, FamilyWrite> WritesOf(const Transaction& transaction) {
  std::map<Family, FamilyWrite> writes;
  for (const Operation& operation : transaction.operations) {
    const ChainId& chain = ChainOf(operation);
    std::vector<std::string>& tables = writes[chain.family].tables;
    const absl::string_view name = netlink::TableName(chain.table);
    if (tables.empty() || tables.back() != name) tables.emplace_back(name);
  }
  return writes;
}

std::set<Family> FamiliesOf(const std::map<Family, FamilyWrite>& writes) {
  std::set<Family> families;
  for (const auto& [family, write] : writes) families.insert(family);
  return families;
}

// Whether something may still need what it deletes: a rule of any table may set the mark.
bool Deletes(const Transaction& transaction) {
  return absl::c_any_of(transaction.operations, [](const Operation& operation) {
    return std::holds_alternative<netlink::DeleteChain>(operation) ||
           std::holds_alternative<netlink::DeleteRule>(operation);
  });
}

std::vector<netlink::ObservedRule> RulesOf(const ObservedChains& chains, const ChainId& chain) {
  const auto found = chains.find(chain);
  if (found == chains.end()) return {};
  return found->second.rules;
}

// Whether what it adds may do something else than where it was planned, because its chain has
// changed. At the front it does the same, unless it is there by now.
bool IsOutdated(const Operation& operation, const ObservedChains& planned,
                const ObservedChains& now) {
  const auto* add = std::get_if<netlink::AddRule>(&operation);
  if (add == nullptr) return false;
  const std::vector<netlink::ObservedRule> before = RulesOf(planned, add->chain);
  const std::vector<netlink::ObservedRule> after = RulesOf(now, add->chain);
  if (before == after) return false;
  const auto is_the_same = [&](const netlink::ObservedRule& rule) {
    return rule.rule() != nullptr && *rule.rule() == add->rule;
  };
  return add->before != 1 ||
         (absl::c_any_of(after, is_the_same) && absl::c_none_of(before, is_the_same));
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

// The rules of one family.
struct FamilyState {
  TableHashes tables;
  ObservedChains chains;
  // What was selected of `chains`.
  SavedSelection selection = {};
  std::optional<IptablesVersion> version = {};
};

// `work` for every family at the same time: nearly all of it is waiting for a program, and the
// kernel has a lock for each family. The threads are in the namespaces of this one, and end here.
template <typename Result>
std::map<Family, Result> AtOnce(const std::set<Family>& families, const auto& work) {
  std::vector<std::pair<Family, std::future<Result>>> running;
  {
    const AllSignalsBlocked inherited;
    for (const Family family : families) {
      // The first one is done by this thread; the others too, if no thread can be made.
      const auto policy =
          running.empty() ? std::launch::deferred : std::launch::async | std::launch::deferred;
      running.emplace_back(family, std::async(policy, std::cref(work), family));
    }
  }
  std::map<Family, Result> results;
  for (auto& [family, result] : running) results.emplace(family, result.get());
  return results;
}

class IptablesLegacyBackend : public netlink::Backend {
 public:
  IptablesLegacyBackend(CommandRunner* runner, IptablesLegacyOptions options)
      : runner_(runner), options_(std::move(options)), last_reading_(options_.lock_path) {}

  absl::Status Open() {
    const IptablesLegacyPrograms* first = nullptr;
    for (const Family family : netlink::kFamilies) {
      const auto& [at, added] = programs_.emplace(
          family, FindIptablesLegacyPrograms(*runner_, family, options_.directories, first));
      if (at->second.ok()) first = &*at->second;
    }
    return programs_.at(Family::kIPv4).status();
  }

  netlink::BackendKind kind() const override { return netlink::BackendKind::kIptablesLegacy; }
  bool spans_families() const override { return false; }

  std::string caveat() override {
    for (const auto& [family, programs] : programs_) {
      if (!KnowVersions({family}).ok() || !TakesFixedLock(*programs->version)) continue;
      return absl::StrCat(
          programs->restore, " is older than 1.8.7 and takes ", options_.lock_path,
          " itself: it overwrites another program's change in the milliseconds between the last "
          "check and the write; a newer iptables has no such window");
    }
    return "";
  }

  absl::StatusOr<Snapshot> Read(absl::Span<const ChainQuery> queries,
                                const netlink::NativeTable* /*native*/) override {
    if (absl::Status status = netns_.Check(); !status.ok()) return status;
    last_reading_.Begin();
    std::set<Family> families;
    SavedSelection selection;
    for (const ChainQuery& query : queries) {
      families.insert(query.chain.family);
      (query.with_rules ? selection.chains : selection.bare).insert(query.chain);
    }
    // No query asks for the generation of everything.
    if (queries.empty()) families.insert(netlink::kFamilies.begin(), netlink::kFamilies.end());
    Snapshot snapshot;
    Content content;
    const auto read = [&](Family family) { return ReadFamily(family, selection, queries); };
    for (auto& [family, state] : AtOnce<absl::StatusOr<FamilyState>>(families, read)) {
      if (!state.ok()) return state.status();
      content[family] = state->tables;
      snapshot.chains.merge(state->chains);
      selection.chains.merge(state->selection.chains);
      if (state->version) programs_.at(family)->version = state->version;
    }
    snapshot.generation = NumberOf(content);
    last_reading_.End(snapshot.chains, std::move(selection));
    return snapshot;
  }

  absl::StatusOr<netlink::Survey> TakeSurvey(const netlink::SurveyFilter& keep) override {
    if (absl::Status status = netns_.Check(); !status.ok()) return status;
    const absl::string_view name = netlink::BackendKindName(kind());
    netlink::Survey survey = {.mode = std::string(name), .generation = 0, .tables = {}};
    Content content;
    const auto save = [this](Family family) { return Save(family); };
    for (const auto& [family, text] : AtOnce<absl::StatusOr<std::string>>(
             {netlink::kFamilies.begin(), netlink::kFamilies.end()}, save)) {
      if (!text.ok()) return text.status();
      const auto tables = ReadSave(*text, TablesMayRepeat::kNo);
      if (!tables.ok()) return tables.status();
      content[family] = HashesOf(*tables);
      // One family after the other: `keep` need not allow calls from two threads.
      survey.tables.merge(SurveyOf(name, family, *tables, keep).tables);
    }
    survey.generation = NumberOf(content);
    return survey;
  }

  // One family after the other, because the sieve need not allow calls from two threads.
  absl::StatusOr<netlink::Survey> SiftSurvey(netlink::SurveySieve& sieve) override {
    if (absl::Status status = netns_.Check(); !status.ok()) return status;
    netlink::Survey survey = {
        .mode = std::string(netlink::BackendKindName(kind())), .generation = 0, .tables = {}};
    for (const Family family : netlink::kFamilies) {
      const auto complete = [this](absl::string_view rule) -> absl::StatusOr<std::string> {
        if (!absl::StrContains(rule, "-m connlabel ")) return std::string(rule);
        return WithConnLabelNumbers(rule, ReadConnLabelNames(options_.label_names_path));
      };
      SaveSifter sifter(family, sieve, survey, complete);
      const SaveTaker taker = {
          .take = [&](absl::string_view piece) { return sifter.Take(piece); },
          .has_table =
              [&, name = netlink::FamilyName(family)](absl::string_view table) {
                return survey.tables.contains({std::string(name), std::string(table)});
              }};
      absl::Status status =
          SaveIptablesLegacyTables(family, *runner_, programs_.at(family), options_, "", taker)
              .status();
      if (status.ok()) status = sifter.Finish();
      if (!status.ok()) return status;
    }
    return survey;
  }

  absl::Status Apply(const Transaction& transaction) override {
    if (transaction.empty()) return absl::OkStatus();
    if (absl::Status status = netns_.Check(); !status.ok()) return status;
    const auto content = contents_.find(transaction.generation);
    if (content == contents_.end()) {
      return absl::AbortedError(
          "the transaction's generation was not read recently; nothing was done");
    }
    std::map<Family, FamilyWrite> writes = WritesOf(transaction);
    for (auto& [family, write] : writes) {
      const auto before = content->second.find(family);
      if (before == content->second.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            netlink::FamilyName(family), " was not read at the transaction's generation"));
      }
      write.before = before->second;
      if (write.tables.size() > 1 || transaction.generation != current_ || Deletes(transaction)) {
        continue;
      }
      const std::string& only = write.only = write.tables.front();
      std::erase_if(write.before, [&only](const auto& each) { return each.first != only; });
    }
    absl::Status known = KnowVersions(FamiliesOf(writes));
    if (!known.ok()) return Annotated(known, "; nothing was done");
    const absl::StatusOr<XtablesLock> lock = Lock(writes);
    if (!lock.ok()) return Annotated(lock.status(), "; nothing was done");
    const absl::StatusOr<Transaction> plan = Check(transaction, writes);
    if (!plan.ok()) return plan.status();
    const auto write = [&](Family family) {
      return Write(*plan, family, writes.at(family), lock->valid());
    };
    std::string done;
    absl::Status status;
    for (const auto& [family, result] : AtOnce<absl::Status>(FamiliesOf(writes), write)) {
      if (result.ok()) {
        absl::StrAppend(&done, "; ", netlink::FamilyName(family), ": done");
        current_ = 0;
      }
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
  absl::StatusOr<std::string> Save(Family family, absl::string_view only = "") {
    return SaveIptablesLegacyTables(family, *runner_, programs_.at(family), options_, only);
  }

  // Runs a program only where no save has shown the version, and no program of the other family is
  // the same.
  absl::Status KnowVersions(const std::set<Family>& families) {
    for (const Family family : families) {
      absl::StatusOr<IptablesLegacyPrograms>& programs = programs_.at(family);
      if (!programs.ok()) return programs.status();
      const auto& other = programs_.at(family == Family::kIPv4 ? Family::kIPv6 : Family::kIPv4);
      absl::Status status = KnowVersion(*runner_, *programs, other.ok() ? &*other : nullptr);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // iptables-legacy has no generations: each content has a number, from 1. One that comes back has
  // its number again, if it is among the last ones seen; only these can still be current.
  uint32_t NumberOf(const Content& content) {
    const auto known =
        absl::c_find_if(contents_, [&](const auto& each) { return each.second == content; });
    if (known != contents_.end()) return current_ = known->first;
    contents_.emplace(++last_number_, content);
    if (contents_.size() > 16) contents_.erase(contents_.begin());
    return current_ = last_number_;
  }

  // The chains of `family` that are selected; of the table `only`, where that is given.
  absl::StatusOr<FamilyState> ReadFamily(Family family, SavedSelection selection,
                                         absl::Span<const ChainQuery> queries,
                                         absl::string_view only = "") {
    const absl::StatusOr<std::string> text = Save(family, only);
    if (!text.ok()) return text.status();
    absl::StatusOr<std::vector<SavedTable>> tables = ReadSave(*text, TablesMayRepeat::kNo);
    if (!tables.ok()) return tables.status();
    if (!only.empty()) std::erase_if(*tables, [&](const auto& each) { return each.name != only; });
    FamilyState state{.tables = HashesOf(*tables),
                      .chains = {},
                      .selection = std::move(selection),
                      .version = VersionOfSave(*text)};
    for (;;) {
      state.chains = ChainsOf(family, *tables, &state.selection);
      std::set<ChainId> more =
          netlink::ChainsOnTheWay(state.chains, queries, state.selection.chains);
      if (more.empty()) return state;
      state.selection.chains.merge(more);
    }
  }

  // Ours, where the programs can be kept from taking it, too. Else none.
  absl::StatusOr<XtablesLock> Lock(const std::map<Family, FamilyWrite>& writes) {
    for (const auto& [family, write] : writes) {
      if (TakesFixedLock(*programs_.at(family)->version)) return XtablesLock();
    }
    const auto start = std::chrono::steady_clock::now();
    absl::StatusOr<XtablesLock> lock = AcquireXtablesLock(options_.lock_path, options_.lock_wait);
    if (options_.lock_waited) {
      options_.lock_waited(absl::FromChrono(std::chrono::steady_clock::now() - start));
    }
    return lock;
  }

  // The transaction to write, if the rules that it was made from are unchanged and all of it can be
  // done.
  absl::StatusOr<Transaction> Check(const Transaction& transaction,
                                    const std::map<Family, FamilyWrite>& writes) {
    const SavedSelection needed = SelectionFor(transaction);
    bool writers_use_lock = true;
    bool random_fully = true;
    for (const auto& [family, write] : writes) {
      const IptablesVersion& version = *programs_.at(family)->version;
      writers_use_lock = writers_use_lock && version.LockIsMovable();
      random_fully = random_fully && version.HasRandomFully();
    }
    ObservedChains planned;
    if (transaction.despite_changes && transaction.generation == current_) {
      planned = last_reading_.chains();
    }
    if (writers_use_lock && transaction.generation == current_ && !Deletes(transaction)) {
      std::optional<ObservedChains> chains = last_reading_.TakeUnchanged(needed.chains);
      if (chains) return PlanRestore(*std::move(chains), transaction, random_fully);
    }
    absl::StatusOr<ObservedChains> chains = ReadAgain(needed, writes, transaction.despite_changes);
    if (!chains.ok()) return chains.status();
    for (const Operation& operation : transaction.operations) {
      if (transaction.despite_changes && IsOutdated(operation, planned, *chains)) {
        return absl::AbortedError(absl::StrCat(netlink::ToString(ChainOf(operation)),
                                               " has changed since it was read; nothing was done"));
      }
    }
    return PlanRestore(*std::move(chains), transaction, random_fully);
  }

  // Others wait for the lock meanwhile, so what is written alone is read alone.
  absl::StatusOr<ObservedChains> ReadAgain(const SavedSelection& needed,
                                           const std::map<Family, FamilyWrite>& writes,
                                           bool despite_changes) {
    const auto read = [&](Family family) {
      return ReadFamily(family, needed, {}, writes.at(family).only);
    };
    ObservedChains chains;
    for (auto& [family, now] : AtOnce<absl::StatusOr<FamilyState>>(FamiliesOf(writes), read)) {
      if (!now.ok()) return now.status();
      if (!despite_changes && now->tables != writes.at(family).before) {
        return absl::AbortedError(
            absl::StrCat("the rules of ", netlink::FamilyName(family),
                         " have changed since they were read; nothing was done"));
      }
      chains.merge(now->chains);
    }
    return chains;
  }

  // Runs iptables-legacy-restore, again where it reported a resource and nothing has changed.
  absl::Status Write(const Transaction& plan, Family family, const FamilyWrite& write,
                     bool locked) {
    const std::string tables = absl::StrJoin(WritesOf(plan)[family].tables, ", ");
    if (tables.empty()) return absl::OkStatus();
    const absl::string_view name = netlink::FamilyName(family);
    const std::string what = absl::StrCat("writing ", name, " ", tables);
    const IptablesLegacyPrograms& programs = *programs_.at(family);
    CommandRequest request =
        IptablesLegacyRequest(programs.restore, {"--noflush"}, options_.command_deadline);
    request.input = RestoreText(plan, family);
    if (locked) {
      request.environment.emplace_back(kPrivateLock);
    } else {
      absl::c_move(RestoreWaitArguments(*programs.version, options_.lock_wait),
                   std::back_inserter(request.arguments));
    }
    const auto start = std::chrono::steady_clock::now();
    absl::StatusOr<CommandResult> result = runner_->Run(request);
    while (result.ok() && result->exit_code == kXtablesResourceProblem &&
           absl::FromChrono(std::chrono::steady_clock::now() - start) < options_.lock_wait &&
           IsUnchanged(family, write)) {
      absl::SleepFor(Jittered(kRetryPause));
      result = runner_->Run(request);
    }
    if (result.ok() && result->exit_code == 0) return absl::OkStatus();
    // Each table is written whole or not at all.
    std::string more =
        IsUnchanged(family, write)
            ? absl::StrCat("; ", name, ": nothing was done")
            : absl::StrCat("; ", name, ": of the tables ", tables,
                           ", in this order, the first may be done, each whole: read again");
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
    NoteWriteRefused(family, *result, failure);
    return Annotated(failure, more);
  }

  // False, too, where that cannot be read.
  bool IsUnchanged(Family family, const FamilyWrite& write) {
    const absl::StatusOr<FamilyState> now = ReadFamily(family, {}, {}, write.only);
    return now.ok() && now->tables == write.before;
  }

  CommandRunner* runner_;
  IptablesLegacyOptions options_;
  NetnsGuard netns_;
  std::map<Family, absl::StatusOr<IptablesLegacyPrograms>> programs_;
  std::map<uint32_t, Content> contents_;
  uint32_t last_number_ = 0;  // of contents_
  uint32_t current_ = 0;      // the last one read; 0 after a write
  LastReading last_reading_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<netlink::Backend>> NewIptablesLegacyBackend(
    CommandRunner* runner, IptablesLegacyOptions options) {
  auto backend = std::make_unique<IptablesLegacyBackend>(runner, std::move(options));
  if (absl::Status status = backend->Open(); !status.ok()) return status;
  return backend;
}

}  // namespace kipt::agent
