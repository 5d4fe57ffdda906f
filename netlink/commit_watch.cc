// SPDX-License-Identifier: Apache-2.0
#include "netlink/commit_watch.h"

#include <libmnl/libmnl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "netlink/kernel_error.h"
#include "netlink/nf_tables.h"
#include "netlink/nft_requests.h"

namespace kipt::netlink {
namespace {

// A commit of 30,000 rules in one go. Takes memory only while messages wait.
constexpr int kReceiveBufferBytes = 32 << 20;
// The kernel joins messages up to a page or two; one of a long rule is alone.
constexpr size_t kDatagramBytes = 65536;
constexpr int kPatienceMillis = 100;
// More is "everything".
constexpr size_t kMostTouched = 4096;

using SteadyClock = std::chrono::steady_clock;

// No commit for so long, and they need not be watched any more.
constexpr std::chrono::seconds kQuiet(1);
// A chain of so many rules is kept: those of ours are shorter, and have new counters each time.
constexpr size_t kLongChain = 256;
// A transaction that is given up while a chain is dumped can hide one of its rules, and no message
// reports it.
constexpr std::chrono::minutes kLongestKept(1);
// Rules, of some 450 bytes.
constexpr size_t kMostKept = 131'072;

absl::Status Unknown() {
  return absl::AbortedError("it is not known what other programs' commits changed");
}

// False: of no interest. Each kind of object has its table's name in the same place.
bool Read(const nlmsghdr* message, Touched& touched) {
  const WireBytes bytes = MessageBytes(message);
  const uint8_t family = FamilyOf(bytes);
  if (family != NFPROTO_IPV4 && family != NFPROTO_IPV6) return false;
  touched.family = family == NFPROTO_IPV4 ? Family::kIPv4 : Family::kIPv6;
  const Attributes attributes = Attributes::OfMessage(bytes);
  touched.table = attributes.Text(NFTA_TABLE_NAME).value_or("");
  // The low byte is the NFT_MSG_*; this socket hears of nf_tables only.
  switch (NFNL_MSG_TYPE(message->nlmsg_type)) {
    case NFT_MSG_NEWSETELEM:
    case NFT_MSG_DELSETELEM:
      return false;
    case NFT_MSG_NEWCHAIN:
    case NFT_MSG_DELCHAIN:
      touched.what = Touch::kChain;
      touched.chain = attributes.Text(NFTA_CHAIN_NAME).value_or("");
      return true;
    case NFT_MSG_NEWRULE:
    case NFT_MSG_DELRULE:
      touched.what = Touch::kRules;
      touched.chain = attributes.Text(NFTA_RULE_CHAIN).value_or("");
      return true;
    default:
      return true;
  }
}

}  // namespace

bool ReadScope::IsTouched(const Touched& by) const {
  if (tables.contains({by.family, by.table})) return true;
  const std::optional<Table> table = FindTable(by.table);
  if (!table) return false;
  const ChainId chain = {by.family, *table, by.chain};
  const auto of_table = [&](const ChainId& one) {
    return one.family == by.family && one.table == *table;
  };
  switch (by.what) {
    case Touch::kTable:
      return std::any_of(chains.begin(), chains.end(), of_table) ||
             std::any_of(names.begin(), names.end(), of_table);
    case Touch::kChain:
      return chains.contains(chain) || names.contains(chain);
    case Touch::kRules:
      return chains.contains(chain);
  }
  return true;
}

absl::StatusOr<std::unique_ptr<CommitWatch>> CommitWatch::Open(Socket& requests) {
  absl::StatusOr<MnlSocketPtr> socket =
      OpenNetlinkSocket(NETLINK_NETFILTER, SOCK_NONBLOCK, kReceiveBufferBytes);
  if (!socket.ok()) return socket.status();
  return std::unique_ptr<CommitWatch>(new CommitWatch(*std::move(socket), requests));
}

absl::Status CommitWatch::Join() {
  absl::StatusOr<Receiver> receiver = Receiver::Make(kDatagramBytes);
  if (!receiver.ok()) return receiver.status();
  int group = NFNLGRP_NFTABLES;
  if (mnl_socket_setsockopt(socket_.get(), NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) != 0) {
    return KernelError(errno, "listening to nf_tables");
  }
  receiver_ = *std::move(receiver);
  const absl::StatusOr<uint32_t> now = ReadGeneration(requests_);
  seen_ = now.value_or(0);
  return now.status();
}

void CommitWatch::Leave() {
  int group = NFNLGRP_NFTABLES;
  mnl_socket_setsockopt(socket_.get(), NETLINK_DROP_MEMBERSHIP, &group, sizeof(group));
  // What is queued is of no use, and would be taken for new.
  Receive().IgnoreError();
  touched_.clear();
  kept_.clear();
  read_generation_ = 0;
  receiver_.reset();
}

bool CommitWatch::quiet() const { return SteadyClock::now() - last_commit_ > kQuiet; }

absl::Status CommitWatch::BeginRead() {
  if (!joined()) {
    if (absl::Status status = Join(); !status.ok()) return status;
  }
  if (SteadyClock::now() - kept_since_ > kLongestKept) kept_.clear();
  const absl::StatusOr<uint32_t> now = ReadGeneration(requests_);
  return now.ok() ? TakeUntil(*now).status() : now.status();
}

const std::vector<ObservedRule>* CommitWatch::Kept(const ChainId& chain) const {
  const auto kept = kept_.find(chain);
  return kept == kept_.end() ? nullptr : &kept->second;
}

void CommitWatch::Keep(const ChainId& chain, const std::vector<ObservedRule>& rules) {
  if (rules.size() < kLongChain) return;
  if (kept_.empty()) kept_since_ = SteadyClock::now();
  size_t all = rules.size();
  for (const auto& [id, kept] : kept_) all += kept.size();
  if (all <= kMostKept) kept_[chain] = rules;
}

absl::StatusOr<uint32_t> CommitWatch::EndRead(ReadScope scope) {
  read_ = std::move(scope);
  return CheckScope();
}

absl::StatusOr<uint32_t> CommitWatch::StillAsRead(uint32_t generation) {
  if (!joined() || generation == 0 || generation != read_generation_) {
    return absl::AbortedError("that generation was not read last, or nothing was watched");
  }
  return CheckScope();
}

absl::StatusOr<uint32_t> CommitWatch::CheckScope() {
  const absl::StatusOr<uint32_t> now = ReadGeneration(requests_);
  if (!now.ok()) {
    read_generation_ = 0;
    return now.status();
  }
  if (*now != read_generation_) last_commit_ = SteadyClock::now();
  const absl::StatusOr<bool> touched = TakeUntil(*now);
  if (!touched.ok()) return touched.status();
  if (*touched) return absl::AbortedError("the ruleset changed while it was read");
  return read_generation_ = *now;
}

absl::StatusOr<bool> CommitWatch::TakeUntil(uint32_t generation) {
  // What waits is taken even where enough was seen: it keeps the queue short.
  absl::Status status = Receive();
  // Differences, because generations start again after 2^32.
  while (status.ok() && static_cast<int32_t>(seen_ - generation) < 0) {
    pollfd ready = {.fd = mnl_socket_get_fd(socket_.get()), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kPatienceMillis) == 0) status = Unknown();
    if (status.ok()) status = Receive();
  }
  const std::set<Touched> touched = std::exchange(touched_, {});
  if (!status.ok() || touched.size() > kMostTouched) {
    if (!status.ok()) seen_ = generation;
    kept_.clear();
    read_generation_ = 0;
    return Unknown();
  }
  bool any = false;
  for (const Touched& by : touched) {
    any |= read_.IsTouched(by);
    std::erase_if(
        kept_, [&](const auto& kept) { return ReadScope{.chains = {kept.first}}.IsTouched(by); });
  }
  if (any) read_generation_ = 0;
  return any;
}

absl::Status CommitWatch::Receive() {
  for (;;) {
    const auto datagrams = receiver_->Receive(*socket_, MSG_DONTWAIT, "receiving commits");
    // ENOBUFS: some were lost.
    if (!datagrams.ok()) return Unknown();
    for (const Datagram& datagram : *datagrams) {
      if (datagram.cut) return Unknown();
      const auto* message = reinterpret_cast<const nlmsghdr*>(datagram.bytes.data());
      int rest = static_cast<int>(datagram.bytes.size());
      for (; IsWhole(message, rest); message = mnl_nlmsg_next(message, &rest)) Take(message);
      if (rest > 0) return Unknown();
    }
    if (datagrams->size() < Receiver::kAtOnce) return absl::OkStatus();
  }
}

void CommitWatch::Take(const nlmsghdr* message) {
  if (message->nlmsg_type == NftMessageType(NFT_MSG_NEWGEN)) {
    const Attributes attributes = Attributes::OfMessage(MessageBytes(message));
    seen_ = attributes.U32(NFTA_GEN_ID).value_or(seen_);
    return;
  }
  if (Touched touched; touched_.size() <= kMostTouched && Read(message, touched)) {
    touched_.insert(std::move(touched));
  }
}

}  // namespace kipt::netlink
