// SPDX-License-Identifier: Apache-2.0
//
// What the commits of other programs touch, for a reader that is slower than they write.
#ifndef KIPT_NETLINK_COMMIT_WATCH_H_
#define KIPT_NETLINK_COMMIT_WATCH_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "netlink/attributes.h"
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

// Stays in the network namespace in which it was opened. While it has joined NFNLGRP_NFTABLES, the
// kernel builds a message for each object of any commit. Not safe for use by several threads at
// once.
class CommitWatch {
 public:
  // Has not joined.
  static absl::StatusOr<std::unique_ptr<CommitWatch>> Open();

  absl::Status Join();
  void Leave();
  bool joined() const { return joined_; }

  // Commits up to this generation, read after Join, are of no interest.
  void Begin(uint32_t generation) { seen_ = generation; }

  // What the commits since the last call touched, up to the one that led to `generation`, or later
  // ones. Of families ip and ip6 only, without elements of sets. Waits until that one is reported.
  //
  // Aborted: it is not known; messages were lost, or none came for 100 ms.
  absl::StatusOr<std::set<Touched>> TakeUntil(uint32_t generation);

 private:
  CommitWatch(MnlSocketPtr socket, Receiver receiver)
      : socket_(std::move(socket)), receiver_(std::move(receiver)) {}

  absl::Status Receive();
  void Take(const nlmsghdr* message);

  MnlSocketPtr socket_;
  Receiver receiver_;
  bool joined_ = false;
  uint32_t seen_ = 0;
  std::set<Touched> touched_;
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_COMMIT_WATCH_H_
