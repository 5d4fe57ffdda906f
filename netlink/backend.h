// SPDX-License-Identifier: Apache-2.0
//
// Reads the kernel's rules as values and applies transactions. A Backend decides nothing: retries,
// ownership and policy belong to its callers.
#ifndef KIPT_NETLINK_BACKEND_H_
#define KIPT_NETLINK_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "netlink/ruleset.h"
#include "netlink/survey.h"
#include "netlink/transaction.h"

namespace kipt::netlink {

struct ChainQuery {
  ChainId chain;
  // False: only whether the chain exists, for it may have tens of thousands of rules.
  bool with_rules = true;
  // Also reads what keeps packets from rules of this chain: whether the table is dormant, and with
  // their rules the chains that every packet passes before the last unconditional jump to another
  // chain queried with rules (in a user chain, and without such a jump: before the end), and those
  // that these lead to. Never the rules of a chain queried without them.
  bool follow = false;
};

// How a backend is watched.
enum class WatchMode : uint8_t {
  // The kernel reports every commit, and its writer. Other programs' commits take longer, because
  // the kernel then builds a notification of every object in them.
  kEvents,
  // The generation is read ten times a second. Costs other writers nothing and names none of them.
  kPoll,
};

// One commit of another writer.
struct RulesetChange {
  // The generation that it led to; 0 where not known.
  uint32_t generation = 0;
  // In RulesetChanges::writers: the generation of this writer's first change.
  uint32_t first_generation = 0;
  // NFTA_GEN_PROC_PID, in the initial PID namespace; 0 where not known.
  uint32_t pid = 0;
  // NFTA_GEN_PROC_NAME (proc_pid_comm(5)): at most 15 bytes of anything; empty where not known.
  std::string command = {};

  bool operator==(const RulesetChange&) const = default;
};

// What has happened since the last Drain, without our own commits where the backend can distinguish
// them (the iptables-legacy backend cannot).
struct RulesetChanges {
  static constexpr size_t kMaxWriters = 8;

  uint64_t count = 0;
  // The last change of each of the first kMaxWriters writers (pid and command), oldest writer
  // first. Empty where writers are not known.
  std::vector<RulesetChange> writers = {};
  // How many of the changes are by none of `writers`, or have no known writer or generation.
  uint64_t others = 0;
  // Events that the kernel dropped because we were too slow. Harmless: a check follows anyway.
  uint64_t lost = 0;

  bool operator==(const RulesetChanges&) const = default;
};

// Not safe for use by several threads at once. Must not outlive its backend.
class Monitor {
 public:
  virtual ~Monitor() = default;

  // Readable (poll(2), level-triggered) while there is something to drain. Owned by the monitor.
  virtual int fd() const = 0;

  // Empties the queue without blocking. The count may be 0: a commit of our own, or a lock that was
  // taken for reading. After an error the monitor is useless.
  virtual absl::StatusOr<RulesetChanges> Drain() = 0;
};

// How rules are written.
enum class BackendKind : uint8_t { kNft, kIptablesLegacy };

// "nft" or "legacy", in flags, JSON, metrics and texts.
constexpr absl::string_view BackendKindName(BackendKind kind) {
  return kind == BackendKind::kNft ? "nft" : "legacy";
}

constexpr BackendKind OtherThan(BackendKind kind) {
  return kind == BackendKind::kNft ? BackendKind::kIptablesLegacy : BackendKind::kNft;
}

// Not safe for use by several threads at once; may be created on one thread and used on another.
// Stays in the network namespace in which it was created.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual BackendKind kind() const = 0;

  // Whether a transaction of both families is applied whole or not at all. If not, a refused one
  // may have been applied for one of them.
  virtual bool spans_families() const { return true; }

  // For the log: what this backend, unlike others of its kind, cannot do here. May be empty. Before
  // the first Read this may take the time of a program.
  virtual std::string caveat() { return ""; }

  // The current state of these chains, all at one generation, and with the counters of a chain of
  // hundreds of rules perhaps those of an earlier Read. Unless `native` is null, the native
  // table of its family and name is read as well, into Snapshot::native; iptables-legacy has none.
  // Creates no table or chain. The cost grows with the rules of these chains only.
  //
  // Aborted: other programs kept changing the ruleset; read again.
  // FailedPrecondition: a rule of a base chain takes more than a kernel's message of 32 KiB, and
  // hides others; in other chains that is not noticed.
  // PermissionDenied: CAP_NET_ADMIN is missing.
  // Other codes as kernel_error.h maps them.
  virtual absl::StatusOr<Snapshot> Read(absl::Span<const ChainQuery> queries,
                                        const NativeTable* native) = 0;
  absl::StatusOr<Snapshot> Read(absl::Span<const ChainQuery> queries) {
    return Read(queries, nullptr);
  }

  // Read where other programs write faster than it can: a commit in between is no error. What the
  // snapshot holds existed meanwhile, but a chain of several datagrams may lack a rule that was
  // there all the time, or hold one twice. So it shows what may be added, never what may be
  // removed. Its generation is 0: ask for one with Read({}).
  //
  // Aborted: a chain was deleted meanwhile, or fewer rules of a base chain were listed than it has.
  // Other errors as Read. Where a read is always at one
  // generation (iptables-legacy), this is one.
  virtual absl::StatusOr<Snapshot> ReadTorn(absl::Span<const ChainQuery> queries,
                                            const NativeTable* native) {
    return Read(queries, native);
  }

  // Every table of this mode, of all families, at one generation, with the rules that `keep`
  // chooses; it sees each rule once. Creates nothing. The cost grows with all rules.
  //
  // Aborted: another program wrote meanwhile; discard what `keep` has seen, and read again. Other
  // errors as Read.
  virtual absl::StatusOr<Survey> TakeSurvey(const SurveyFilter& keep) = 0;

  // The same with what `sieve` keeps, which takes memory for that only, and for the chains' names.
  // Discard the sieve after an error, too. The generation of iptables-legacy is 0.
  virtual absl::StatusOr<Survey> SiftSurvey(SurveySieve& sieve) {
    absl::StatusOr<Survey> survey = TakeSurvey(nullptr);
    return survey.ok() ? Sifted(*std::move(survey), sieve) : survey.status();
  }

  // Applies the whole transaction or nothing of it (iptables-legacy: the whole of each table or
  // nothing of it). An empty transaction succeeds without touching the kernel.
  //
  // Aborted: the ruleset is no longer at transaction.generation (see only_of_snapshot); nothing was
  // done; read again.
  // Any other error names the operation, family, table, chain and rule that was refused; nothing
  // was done: NotFound (a chain, handle, jump target or kernel module is missing), InvalidArgument,
  // FailedPrecondition (the chain to delete is in use, or a base chain exists with another hook),
  // PermissionDenied.
  virtual absl::Status Apply(const Transaction& transaction) = 0;

  // A monitor of other programs' commits from now on. Take it before the first Read.
  //
  // PermissionDenied, ResourceExhausted (descriptors, inotify watches, memory), NotFound (nothing
  // to watch exists). Unimplemented: this backend cannot be watched in this mode.
  virtual absl::StatusOr<std::unique_ptr<Monitor>> Watch(WatchMode mode) = 0;
};

// The Backend of nf_tables: both families over one netlink socket, no program executed, no lock
// taken (netlink/README.md).
// Unavailable: this kernel has no netfilter netlink.
absl::StatusOr<std::unique_ptr<Backend>> NewNftBackend();

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_BACKEND_H_
