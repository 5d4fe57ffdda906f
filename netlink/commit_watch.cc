// SPDX-License-Identifier: Apache-2.0
#include "netlink/commit_watch.h"

#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "netlink/kernel_error.h"

namespace kipt::netlink {
namespace {

// A commit of 30,000 rules in one go. Takes memory only while messages wait.
constexpr int kReceiveBufferBytes = 32 << 20;
// The kernel joins messages up to a page or two; one of a long rule is alone.
constexpr size_t kDatagramBytes = 65536;
constexpr int kPatienceMillis = 100;
// More is "everything".
constexpr size_t kMostTouched = 4096;

constexpr uint16_t MessageType(int of) {
  return static_cast<uint16_t>((NFNL_SUBSYS_NFTABLES << 8) | of);
}

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
  switch (message->nlmsg_type) {
    case MessageType(NFT_MSG_NEWSETELEM):
    case MessageType(NFT_MSG_DELSETELEM):
      return false;
    case MessageType(NFT_MSG_NEWCHAIN):
    case MessageType(NFT_MSG_DELCHAIN):
      touched.what = Touch::kChain;
      touched.chain = attributes.Text(NFTA_CHAIN_NAME).value_or("");
      return true;
    case MessageType(NFT_MSG_NEWRULE):
    case MessageType(NFT_MSG_DELRULE):
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

absl::StatusOr<std::unique_ptr<CommitWatch>> CommitWatch::Open() {
  absl::StatusOr<MnlSocketPtr> socket =
      OpenNetlinkSocket(NETLINK_NETFILTER, SOCK_NONBLOCK, kReceiveBufferBytes);
  if (!socket.ok()) return socket.status();
  absl::StatusOr<Receiver> receiver = Receiver::Make(kDatagramBytes);
  if (!receiver.ok()) return receiver.status();
  return std::unique_ptr<CommitWatch>(new CommitWatch(*std::move(socket), *std::move(receiver)));
}

absl::Status CommitWatch::Join() {
  int group = NFNLGRP_NFTABLES;
  if (mnl_socket_setsockopt(socket_.get(), NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) != 0) {
    return KernelError(errno, "listening to nf_tables");
  }
  joined_ = true;
  return absl::OkStatus();
}

void CommitWatch::Leave() {
  int group = NFNLGRP_NFTABLES;
  mnl_socket_setsockopt(socket_.get(), NETLINK_DROP_MEMBERSHIP, &group, sizeof(group));
  joined_ = false;
  // What is queued is of no use, and would be taken for new.
  Receive().IgnoreError();
  touched_.clear();
  receiver_.Clear();
}

absl::StatusOr<std::set<Touched>> CommitWatch::TakeUntil(uint32_t generation) {
  // What waits is taken even where enough was seen: it keeps the queue short.
  absl::Status status = Receive();
  // Differences, because generations start again after 2^32.
  while (status.ok() && static_cast<int32_t>(seen_ - generation) < 0) {
    pollfd ready = {.fd = mnl_socket_get_fd(socket_.get()), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kPatienceMillis) == 0) status = Unknown();
    if (status.ok()) status = Receive();
  }
  std::set<Touched> touched = std::move(touched_);
  touched_.clear();
  if (!status.ok()) {
    seen_ = generation;
    return status;
  }
  if (touched.size() > kMostTouched) return Unknown();
  return touched;
}

absl::Status CommitWatch::Receive() {
  for (;;) {
    const auto datagrams = receiver_.Receive(*socket_, MSG_DONTWAIT, "receiving commits");
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
  if (message->nlmsg_type == MessageType(NFT_MSG_NEWGEN)) {
    const Attributes attributes = Attributes::OfMessage(MessageBytes(message));
    seen_ = attributes.U32(NFTA_GEN_ID).value_or(seen_);
    return;
  }
  if (Touched touched; touched_.size() <= kMostTouched && Read(message, touched)) {
    touched_.insert(std::move(touched));
  }
}

}  // namespace kipt::netlink
