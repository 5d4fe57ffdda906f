// SPDX-License-Identifier: Apache-2.0
//
// What the commits of other programs touch, for a reader that is slower than they write.
#ifndef KIPT_NETLINK_COMMIT_WATCH_H_
#define KIPT_NETLINK_COMMIT_WATCH_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "netlink/ruleset.h"
#include "netlink/socket.h"

namespace kipt::netlink {

// What of a table was changed.
enum class Touch : uint8_t {
  kTable,  // itself, or something other than a chain or rule
  kChain,  // `chain` itself
  kRules,  // those of `chain`
};

struct Touched {
  Family family = Family::kIPv4;
  std::string table;
  std::string chain;
  Touch what = Touch::kTable;

  auto operator<=>(const Touched&) const = default;
};

// What was read, and so must not be touched.
struct ReadScope {
  std::set<ChainId> chains = {};  // with their rules
  std::set<ChainId> names = {};   // without
  // Tables with all that is in them.
  std::set<std::pair<Family, std::string>> tables = {};

  bool IsTouched(const Touched& by) const;
};

// Lets a reader that is slower than others commit find out that nothing of what it read changed.
// Long chains are kept until they are touched, so that they are read once.
//
// Stays in the network namespace in which it was opened. While it has joined NFNLGRP_NFTABLES, the
// kernel builds a message for each object of any commit. Not safe for use by several threads at
// once.
class CommitWatch {
 public:
  // Has not joined. Asks `requests`, which must outlive this, for generations.
  static absl::StatusOr<std::unique_ptr<CommitWatch>> Open(Socket& requests);

  bool joined() const { return receiver_.has_value(); }
  absl::Status Join();
  // Forgets everything.
  void Leave();
  // No commit has been noticed for a second.
  bool quiet() const;

  // Before what follows is read. Joins if it must. Aborted: it is not known what commits changed.
  absl::Status BeginRead();
  // The rules of a chain as they still are; null: read them.
  const std::vector<ObservedRule>* Kept(const ChainId& chain) const;
  // These have been read since BeginRead. A short chain is not kept.
  void Keep(const ChainId& chain, const std::vector<ObservedRule>& rules);
  bool keeps_any() const { return !kept_.empty(); }
  // The generation at which all of `scope` is as it was read since BeginRead. Aborted: it was
  // touched, or that is not known.
  absl::StatusOr<uint32_t> EndRead(ReadScope scope);
  // The newest generation, where what was read last, at `generation`, is still as it was. Aborted
  // as EndRead.
  absl::StatusOr<uint32_t> StillAsRead(uint32_t generation);

 private:
  CommitWatch(MnlSocketPtr socket, Socket& requests)
      : socket_(std::move(socket)), requests_(requests) {}

  // Whether commits touched what was read, up to the one that led to `generation`, or later ones.
  // Waits until that one is reported. Aborted: it is not known, because messages were lost or none
  // came for 100 ms.
  absl::StatusOr<bool> TakeUntil(uint32_t generation);
  absl::StatusOr<uint32_t> CheckScope();
  absl::Status Receive();
  void Take(const nlmsghdr* message);

  MnlSocketPtr socket_;
  Socket& requests_;
  std::optional<Receiver> receiver_;
  // The newest generation that was reported.
  uint32_t seen_ = 0;
  // What commits touched since the last TakeUntil.
  std::set<Touched> touched_;
  ReadScope read_;
  // At which all of `read_` is as it was read; 0: none.
  uint32_t read_generation_ = 0;
  std::chrono::steady_clock::time_point last_commit_;
  std::map<ChainId, std::vector<ObservedRule>> kept_;
  std::chrono::steady_clock::time_point kept_since_;
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_COMMIT_WATCH_H_
