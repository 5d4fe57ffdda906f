// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/attributes.h"
#include "netlink/batch.h"
#include "netlink/commit_watch.h"
#include "netlink/kernel_error.h"
#include "netlink/listed_rules.h"
#include "netlink/nf_tables.h"
#include "netlink/nft_monitor.h"
#include "netlink/nft_requests.h"
#include "netlink/nft_survey.h"
#include "netlink/reach.h"
#include "netlink/rule_codec.h"
#include "netlink/socket.h"

namespace kipt::netlink {
namespace {

// GETCHAIN requests in one datagram: the receive buffer must hold their replies, some 200 bytes
// each.
constexpr size_t kChainsAtOnce = 64;

using SteadyClock = std::chrono::steady_clock;
using SteadyTime = SteadyClock::time_point;

// Then others' commits are watched. A single one is over soon.
constexpr int kAttemptsWithoutWatch = 2;
// Some 10,000 rules.
constexpr std::chrono::milliseconds kSlowRead(50);
// The priority is the administrator's choice.
bool IsHooked(const ChainId& chain, const Attributes& attributes) {
  const std::optional<uint32_t> hook = attributes.Nest(NFTA_CHAIN_HOOK).U32(NFTA_HOOK_HOOKNUM);
  const BaseChain* base = FindBaseChain(chain.table, chain.name);
  if (base == nullptr) return hook.has_value();
  return hook == base->hook && attributes.Text(NFTA_CHAIN_TYPE) == base->type;
}

// One rule twice in an answer is indistinguishable from two equal rules, and removing one would
// remove the other. Kernel 6.18 rarely answers so while other programs write, without
// NLM_F_DUMP_INTR.
bool AnyTwice(const std::vector<ObservedRule>& rules) {
  std::vector<RuleHandle> handles;
  handles.reserve(rules.size());
  for (const ObservedRule& rule : rules) handles.push_back(rule.handle);
  std::sort(handles.begin(), handles.end());
  return std::adjacent_find(handles.begin(), handles.end()) != handles.end();
}

ReadScope ScopeOf(absl::Span<const ChainQuery> queries, const NativeTable* native,
                  const Snapshot& snapshot) {
  ReadScope scope;
  if (native != nullptr) scope.tables.emplace(native->family, native->name);
  for (const ChainQuery& query : queries) {
    (query.with_rules ? scope.chains : scope.names).insert(query.chain);
  }
  for (const auto& [id, chain] : snapshot.chains) {
    if (!scope.names.contains(id)) scope.chains.insert(id);
  }
  return scope;
}

class NftBackend : public Backend {
 public:
  NftBackend(std::unique_ptr<Socket> socket, std::unique_ptr<EventSocket> events,
             std::unique_ptr<CommitWatch> commits)
      : socket_(std::move(socket)), events_(std::move(events)), commits_(std::move(commits)) {}

  BackendKind kind() const override { return BackendKind::kNft; }

  absl::StatusOr<Snapshot> Read(absl::Span<const ChainQuery> queries,
                                const NativeTable* native) override {
    Snapshot snapshot;
    // Often only the generation is asked for: one round trip.
    absl::StatusOr<uint32_t> generation = queries.empty() && native == nullptr
                                              ? ReadGeneration(*socket_)
                                              : ReadAll(queries, native, snapshot);
    if (!generation.ok()) return generation.status();
    snapshot.generation = *generation;
    return snapshot;
  }

  absl::StatusOr<Snapshot> ReadTorn(absl::Span<const ChainQuery> queries,
                                    const NativeTable* native) override {
    Snapshot snapshot;
    const absl::Status status = ReadOnce(queries, native, Torn::kIsAllowed, snapshot);
    if (!status.ok()) return status;
    return snapshot;
  }

  absl::StatusOr<Survey> TakeSurvey(const SurveyFilter& keep) override {
    return TakeNftSurvey(*socket_, keep);
  }

  absl::StatusOr<Survey> SiftSurvey(SurveySieve& sieve) override {
    return SiftNftSurvey(*socket_, sieve);
  }

  absl::Status Apply(const Transaction& transaction) override {
    if (transaction.empty()) return absl::OkStatus();
    bool moved = false;
    absl::Status status = ApplyOnce(transaction, moved);
    Transaction now = transaction;
    for (int attempt = 1; moved && now.only_of_snapshot && attempt < kReadAttempts; ++attempt) {
      const absl::StatusOr<uint32_t> generation = commits_->StillAsRead(now.generation);
      if (!generation.ok()) return status;
      now.generation = *generation;
      status = ApplyOnce(now, moved);
    }
    return status;
  }

  absl::StatusOr<std::unique_ptr<Monitor>> Watch(WatchMode mode) override {
    if (mode == WatchMode::kEvents) return events_->Watch(socket_->port_id());
    return NewPollMonitor([this] { return ReadGeneration(*socket_); }, own_commits_);
  }

 private:
  // A dump of rules that a commit interrupted.
  enum class Torn : uint8_t {
    kIsAnError,
    kIsJudged,  // by what commits touched
    kIsAllowed,
  };

  // `moved`: it was refused because the ruleset is at another generation.
  absl::Status ApplyOnce(const Transaction& transaction, bool& moved) {
    moved = false;
    const absl::StatusOr<Batch> batch = Batch::Build(transaction, socket_->ReserveSequences(0));
    if (!batch.ok()) return batch.status();
    socket_->ReserveSequences(batch->messages().count());
    const absl::StatusOr<std::vector<BatchError>> errors = socket_->SendBatch(batch->messages());
    if (errors.ok()) {
      if (absl::Status refused = batch->Explain(*errors); !refused.ok()) {
        moved = absl::IsAborted(refused);
        return refused;
      }
    }
    absl::Status status = Confirm(transaction.generation, errors.status());
    if (status.ok()) own_commits_.Add(transaction.generation);
    return status;
  }

  absl::StatusOr<uint32_t> ReadAll(absl::Span<const ChainQuery> queries, const NativeTable* native,
                                   Snapshot& snapshot) {
    if (commits_->joined()) return ReadWatching(queries, native, snapshot);
    const SteadyTime begin = SteadyClock::now();
    const auto read = [&](uint32_t /*generation*/) {
      snapshot = {};
      return ReadOnce(queries, native, Torn::kIsAnError, snapshot);
    };
    absl::StatusOr<uint32_t> generation = AtOneGeneration(*socket_, read, kAttemptsWithoutWatch);
    if (absl::IsAborted(generation.status())) return ReadWatching(queries, native, snapshot);
    // The next read fails likewise where this does.
    if (events_->watched() && SteadyClock::now() - begin >= kSlowRead)
      commits_->Join().IgnoreError();
    return generation;
  }

  // A commit in between is no error if it touched nothing that was read. Long chains that none
  // touched are kept for the next time.
  absl::StatusOr<uint32_t> ReadWatching(absl::Span<const ChainQuery> queries,
                                        const NativeTable* native, Snapshot& snapshot) {
    const SteadyTime begin = SteadyClock::now();
    absl::StatusOr<uint32_t> generation;
    do {
      snapshot = {};
      generation = ReadWatchingOnce(queries, native, snapshot);
    } while (absl::IsAborted(generation.status()) && SteadyClock::now() - begin < kReadPatience);
    return generation;
  }

  absl::StatusOr<uint32_t> ReadWatchingOnce(absl::Span<const ChainQuery> queries,
                                            const NativeTable* native, Snapshot& snapshot) {
    absl::Status read = commits_->BeginRead();
    if (read.ok()) read = ReadOnce(queries, native, Torn::kIsJudged, snapshot);
    if (!read.ok()) return read;
    absl::StatusOr<uint32_t> generation = commits_->EndRead(ScopeOf(queries, native, snapshot));
    if (generation.ok() && commits_->quiet() && !(events_->watched() && commits_->keeps_any())) {
      commits_->Leave();
    }
    return generation;
  }

  // Whether a batch of `generation` without an error, or whose answer was lost (`lost`), was
  // committed: each commit changes the generation. Aborted: read again, it may not have been.
  absl::Status Confirm(uint32_t generation, const absl::Status& lost) {
    absl::StatusOr<uint32_t> now = ReadGeneration(*socket_);
    for (int attempt = 1; !now.ok() && attempt < 3; ++attempt) now = ReadGeneration(*socket_);
    if (now.ok() && *now == generation) {
      if (!lost.ok()) return lost;
      return absl::AbortedError("nf_tables did not commit, and its error was lost");
    }
    if (now.ok() && lost.ok()) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat("it is not known whether nf_tables committed: ",
                                           (lost.ok() ? now.status() : lost).message()));
  }

  // Aborted where a commit in between was noticed.
  absl::Status ReadOnce(absl::Span<const ChainQuery> queries, const NativeTable* native, Torn torn,
                        Snapshot& snapshot) {
    // First, because an attempt that fails here has cost little.
    if (native != nullptr) {
      absl::Status status = ReadNativeOnce(*socket_, *native, snapshot.native);
      if (!status.ok()) return status;
    }
    rule_counts_.clear();
    for (size_t i = 0; i < queries.size(); i += kChainsAtOnce) {
      if (absl::Status status = ReadChains(queries.subspan(i, kChainsAtOnce), snapshot);
          !status.ok()) {
        return status;
      }
    }
    // Also if NFTA_CHAIN_USE is 0: another program's open transaction may have deleted the rules.
    std::set<ChainId> read;
    for (const ChainQuery& query : queries) {
      const auto chain = snapshot.chains.find(query.chain);
      if (!query.with_rules || chain == snapshot.chains.end() || !read.insert(query.chain).second) {
        continue;
      }
      absl::Status status = ReadRules(chain->first, torn, chain->second.rules);
      if (!status.ok()) return status;
    }
    if (torn == Torn::kIsJudged && commits_->keeps_any()) {
      if (absl::Status status = CheckKept(queries, snapshot); !status.ok()) return status;
    }
    return Follow(queries, std::move(read), torn, snapshot);
  }

  // No event about a renamed chain has its old name, which rules that are kept still jump to.
  absl::Status CheckKept(absl::Span<const ChainQuery> queries, const Snapshot& snapshot) {
    for (const ChainQuery& query : queries) {
      const ChainId& missing = query.chain;
      if (snapshot.chains.contains(missing)) continue;
      for (const auto& [id, chain] : snapshot.chains) {
        const std::vector<ObservedRule>* kept = commits_->Kept(id);
        if (kept == nullptr || id.family != missing.family || id.table != missing.table) continue;
        const bool leads = std::any_of(kept->begin(), kept->end(), [&](const ObservedRule& rule) {
          const std::string* jump = JumpTarget(rule);
          return jump != nullptr && *jump == missing.name;
        });
        if (!leads) continue;
        commits_->Leave();
        return absl::AbortedError(absl::StrCat(ToString(missing), " was renamed"));
      }
    }
    return absl::OkStatus();
  }

  // Reads what ChainQuery::follow asks for; the rules of `read` are known.
  absl::Status Follow(absl::Span<const ChainQuery> queries, std::set<ChainId> read, Torn torn,
                      Snapshot& snapshot) {
    if (absl::Status status = ReadTables(queries, snapshot); !status.ok()) return status;
    for (;;) {
      const std::set<ChainId> more = ChainsOnTheWay(snapshot.chains, queries, read);
      if (more.empty()) return absl::OkStatus();
      for (const ChainId& chain : more) {
        absl::Status status = ReadRules(chain, torn, snapshot.chains[chain].rules);
        if (!status.ok()) return status;
        read.insert(chain);
      }
    }
  }

  // Which tables are dormant, of those whose chains are followed.
  absl::Status ReadTables(absl::Span<const ChainQuery> queries, Snapshot& snapshot) {
    std::set<std::pair<Family, Table>> asked;
    for (const ChainQuery& query : queries) {
      if (query.follow) asked.emplace(query.chain.family, query.chain.table);
    }
    if (asked.empty()) return absl::OkStatus();
    const std::vector<std::pair<Family, Table>> tables(asked.begin(), asked.end());
    Requests requests(socket_->ReserveSequences(static_cast<uint32_t>(tables.size())));
    for (const auto& [family, table] : tables) {
      requests.Begin(NftMessageType(NFT_MSG_GETTABLE), WireFamily(family), 0,
                     {{NFTA_TABLE_NAME, TableName(table)}});
    }
    const auto action = [&](size_t place) {
      return absl::StrCat("reading table ", FamilyName(tables[place].first), " ",
                          TableName(tables[place].second));
    };
    const auto take = [&](size_t place, const Attributes& attributes) {
      const std::optional<uint32_t> flags = attributes.U32(NFTA_TABLE_FLAGS);
      if (flags && (*flags & kTableDormant) != 0) snapshot.dormant[tables[place]] = *flags;
      return flags.has_value();
    };
    return AskEach(*socket_, requests, NFT_MSG_NEWTABLE, action, take);
  }

  // Which of the chains exist, and whether they have their hooks.
  absl::Status ReadChains(absl::Span<const ChainQuery> queries, Snapshot& snapshot) {
    Requests requests(socket_->ReserveSequences(static_cast<uint32_t>(queries.size())));
    for (const ChainQuery& query : queries) {
      const ChainId& chain = query.chain;
      if (absl::Status status = CheckChainName(chain.name); !status.ok()) return status;
      requests.Begin(NftMessageType(NFT_MSG_GETCHAIN), WireFamily(chain.family), 0,
                     {{NFTA_CHAIN_TABLE, TableName(chain.table)}, {NFTA_CHAIN_NAME, chain.name}});
    }
    const auto action = [&](size_t place) {
      return absl::StrCat("reading chain ", ToString(queries[place].chain));
    };
    const auto take = [&](size_t place, const Attributes& attributes) {
      const ChainId& chain = queries[place].chain;
      if (attributes.Text(NFTA_CHAIN_NAME) != chain.name) return false;
      snapshot.chains[chain].hooked = IsHooked(chain, attributes);
      // No rule jumps to a base chain.
      if (attributes.Bytes(NFTA_CHAIN_HOOK)) {
        rule_counts_[chain] = attributes.U32(NFTA_CHAIN_USE).value_or(0);
      }
      return true;
    };
    return AskEach(*socket_, requests, NFT_MSG_NEWCHAIN, action, take);
  }

  absl::Status ReadRules(const ChainId& chain, Torn torn, std::vector<ObservedRule>& rules) {
    const bool judged = torn == Torn::kIsJudged;
    if (const std::vector<ObservedRule>* kept = commits_->Kept(chain); judged && kept != nullptr) {
      rules = *kept;
      return absl::OkStatus();
    }
    absl::Status status = ListRules(chain, torn, rules);
    if (status.ok() && LacksRules(chain, rules)) status = ListAllRules(chain, torn, rules);
    if (status.ok() && torn != Torn::kIsAllowed && AnyTwice(rules)) {
      return absl::AbortedError(absl::StrCat("chain ", ToString(chain), ": a rule came twice"));
    }
    if (status.ok() && judged) commits_->Keep(chain, rules);
    return status;
  }

  absl::Status ListRules(const ChainId& chain, Torn torn, std::vector<ObservedRule>& rules) {
    const auto action = [&] {
      return absl::StrCat("reading the rules of chain ", ToString(chain));
    };
    const auto take = [&](WireBytes message) {
      absl::StatusOr<ObservedRule> rule = listed_.Decode(chain, rules.size(), message);
      if (!rule.ok()) {
        return absl::Status(rule.status().code(),
                            absl::StrCat(action(), ": ", rule.status().message()));
      }
      rules.push_back(*std::move(rule));
      return absl::OkStatus();
    };
    const absl::StatusOr<int> error =
        AskOne(*socket_, NFT_MSG_GETRULE, WireFamily(chain.family), NLM_F_DUMP,
               {{NFTA_RULE_TABLE, TableName(chain.table)}, {NFTA_RULE_CHAIN, chain.name}}, take);
    listed_.EndChain(chain);
    const bool interrupted = absl::IsAborted(error.status());
    if (!error.ok() && (!interrupted || torn == Torn::kIsAnError)) return error.status();
    if (error.ok() && *error != 0) return KernelError(*error, action());
    return absl::OkStatus();
  }

  // What follows a rule that does not fit a message of 32 KiB is missing, without an error. To add
  // what seems to be missing would add it again and again. The rules of another program's open
  // transaction are counted, too.
  bool LacksRules(const ChainId& chain, const std::vector<ObservedRule>& rules) const {
    const auto count = rule_counts_.find(chain);
    return count != rule_counts_.end() && rules.size() < count->second;
  }

  // Aborted: others changed them meanwhile. FailedPrecondition: one hides others.
  absl::Status ListAllRules(const ChainId& chain, Torn torn, std::vector<ObservedRule>& rules) {
    for (int attempt = 0; attempt < kCompletenessAttempts; ++attempt) {
      if (attempt > 0) AwaitTransactions(*socket_);
      rules.clear();
      rule_counts_.erase(chain);
      const absl::StatusOr<uint32_t> before = ReadGeneration(*socket_);
      if (!before.ok()) return before.status();
      Snapshot counted;
      absl::Status status = ReadChains({{.chain = chain}}, counted);
      if (status.ok() && !rule_counts_.contains(chain)) {
        return absl::AbortedError(absl::StrCat(ToString(chain), " has just been deleted"));
      }
      if (status.ok()) status = ListRules(chain, torn, rules);
      if (!status.ok() || !LacksRules(chain, rules)) return status;
      const absl::StatusOr<uint32_t> after = ReadGeneration(*socket_);
      if (!after.ok()) return after.status();
      if (*after != *before) return absl::AbortedError("the ruleset changed while it was read");
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "reading the rules of chain ", ToString(chain), ": the kernel listed ", rules.size(),
        " of ", rule_counts_[chain], "; one is too large to be listed: delete it"));
  }

  std::unique_ptr<Socket> socket_;
  std::unique_ptr<EventSocket> events_;
  std::unique_ptr<CommitWatch> commits_;
  OwnCommits own_commits_;
  ListedRules listed_;
  // Of base chains, as ReadChains found them.
  std::map<ChainId, uint32_t> rule_counts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> NewNftBackend() {
  absl::StatusOr<std::unique_ptr<Socket>> socket = Socket::Open();
  if (!socket.ok()) return socket.status();
  absl::StatusOr<std::unique_ptr<EventSocket>> events = EventSocket::Open();
  if (!events.ok()) return events.status();
  absl::StatusOr<std::unique_ptr<CommitWatch>> commits = CommitWatch::Open(**socket);
  if (!commits.ok()) return commits.status();
  return std::make_unique<NftBackend>(*std::move(socket), *std::move(events), *std::move(commits));
}

}  // namespace kipt::netlink
