// SPDX-License-Identifier: Apache-2.0
#include "netlink/nft_monitor.h"

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/filter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "netlink/attributes.h"
#include "netlink/kernel_error.h"

namespace kipt::netlink {
namespace {

constexpr uint16_t kNewGeneration = (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_NEWGEN;

// One event has 44 to 56 bytes; the socket's buffer holds some 2,500 (832 bytes each as the kernel
// counts them, and it doubles what is asked for).
constexpr size_t kEventBytes = 256;
// The most in one Drain; the rest makes the socket readable again. More than the buffer holds, so
// it ends even where other programs commit all the time.
constexpr int kMaxReceives = 256;

constexpr timespec kPollPeriod = {.tv_sec = 0, .tv_nsec = 100'000'000};

// The generation after `generation`: the kernel leaves 0 out.
uint32_t Next(uint32_t generation) { return std::max(generation + 1, uint32_t{1}); }

// NFT_MSG_NEWGEN comes last in its transaction and alone in its datagram. Filtered before the
// queue, a commit of 10,000 rules wakes us once and does not fill the buffer.
absl::Status PassOnlyGenerations(int fd) {
  // BPF loads are big endian, messages are not.
  std::array<sock_filter, 4> code = {{
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, offsetof(nlmsghdr, nlmsg_type)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
      BPF_STMT(BPF_RET | BPF_K, 0),
  }};
  code[1].k = htons(kNewGeneration);
  const sock_fprog program = {.len = code.size(), .filter = code.data()};
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0) {
    return KernelError(errno, "attaching a filter to a netlink socket");
  }
  return absl::OkStatus();
}

RulesetChange ParseChange(const nlmsghdr* message) {
  const Attributes attributes = Attributes::OfMessage(MessageBytes(message));
  return RulesetChange{.generation = attributes.U32(NFTA_GEN_ID).value_or(0),
                       .pid = attributes.U32(NFTA_GEN_PROC_PID).value_or(0),
                       .command = attributes.Text(NFTA_GEN_PROC_NAME).value_or("")};
}

}  // namespace

void Record(RulesetChange change, RulesetChanges& changes) {
  ++changes.count;
  if (change.generation == 0 || (change.pid == 0 && change.command.empty())) {
    ++changes.others;
    return;
  }
  const auto known = std::find_if(
      changes.writers.begin(), changes.writers.end(), [&](const RulesetChange& writer) {
        return writer.pid == change.pid && writer.command == change.command;
      });
  if (known != changes.writers.end()) {
    known->generation = change.generation;
  } else if (changes.writers.size() < RulesetChanges::kMaxWriters) {
    change.first_generation = change.generation;
    changes.writers.push_back(std::move(change));
  } else {
    ++changes.others;
  }
}

void OwnCommits::Add(uint32_t generation) {
  if (generation != last_) first_ = generation;
  last_ = Next(generation);
}

bool OwnCommits::Explain(uint32_t from, uint32_t to) const {
  // Differences, because generations start again after 2^32.
  return to == last_ && last_ - from <= last_ - first_;
}

// ---- WatchMode::kEvents ----

class EventSocket::EventMonitor : public Monitor {
 public:
  EventMonitor(EventSocket& socket, Receiver receiver, uint32_t own_port)
      : socket_(socket),
        receiver_(std::move(receiver)),
        own_port_(own_port),
        dropped_(socket.dropped()) {}
  ~EventMonitor() override {
    if (socket_.current_ == this) socket_.Leave();
  }

  int fd() const override { return socket_.fd(); }

  absl::StatusOr<RulesetChanges> Drain() override {
    if (socket_.current_ != this) {
      return absl::FailedPreconditionError("a newer monitor has taken the place of this one");
    }
    RulesetChanges changes;
    for (int i = 0; i < kMaxReceives; ++i) {
      const auto datagrams =
          receiver_.Receive(*socket_.socket_, MSG_DONTWAIT, "receiving events of nf_tables");
      if (!datagrams.ok()) return datagrams.status();
      for (const Datagram& datagram : *datagrams) Take(datagram.bytes, changes);
      if (datagrams->size() < Receiver::kAtOnce) break;
    }
    const uint32_t dropped = socket_.dropped();
    changes.lost = dropped - std::exchange(dropped_, dropped);
    return changes;
  }

 private:
  void Take(WireBytes datagram, RulesetChanges& changes) const {
    if (datagram.empty()) return;
    const auto* message = reinterpret_cast<const nlmsghdr*>(datagram.data());
    int rest = static_cast<int>(datagram.size());
    // One that grew beyond our buffer still says that there was a commit.
    if (!IsWhole(message, rest)) Record(RulesetChange(), changes);
    for (; IsWhole(message, rest); message = mnl_nlmsg_next(message, &rest)) {
      if (message->nlmsg_type != kNewGeneration || message->nlmsg_pid == own_port_) continue;
      Record(ParseChange(message), changes);
    }
  }

  EventSocket& socket_;
  Receiver receiver_;
  uint32_t own_port_;
  uint32_t dropped_;
};

absl::StatusOr<std::unique_ptr<EventSocket>> EventSocket::Open() {
  absl::StatusOr<MnlSocketPtr> socket = OpenNetlinkSocket(NETLINK_NETFILTER, SOCK_NONBLOCK);
  if (!socket.ok()) return socket.status();
  return std::unique_ptr<EventSocket>(new EventSocket(*std::move(socket)));
}

int EventSocket::fd() const { return mnl_socket_get_fd(socket_.get()); }

absl::Status EventSocket::Join() {
  // Before there is anything to filter.
  if (absl::Status status = PassOnlyGenerations(fd()); !status.ok()) return status;
  int on = 1;
  // A lost event is no error: a check follows each Drain anyway.
  if (mnl_socket_setsockopt(socket_.get(), NETLINK_NO_ENOBUFS, &on, sizeof(on)) != 0) {
    return KernelError(errno, "preparing to listen to nf_tables");
  }
  int group = NFNLGRP_NFTABLES;
  if (mnl_socket_setsockopt(socket_.get(), NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) != 0) {
    return KernelError(errno, "listening to nf_tables");
  }
  return absl::OkStatus();
}

void EventSocket::Leave() {
  current_ = nullptr;
  // In a process that a host program forked, the socket is still its parent's.
  if (ForkCount() != forks_) return;
  int group = NFNLGRP_NFTABLES;
  mnl_socket_setsockopt(socket_.get(), NETLINK_DROP_MEMBERSHIP, &group, sizeof(group));
  // No monitor needs what is queued.
  char byte = 0;
  while (recv(fd(), &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) >= 0) {
  }
}

uint32_t EventSocket::dropped() const {
  std::array<uint32_t, SK_MEMINFO_VARS> info = {};
  socklen_t size = sizeof(info);
  getsockopt(fd(), SOL_SOCKET, SO_MEMINFO, info.data(), &size);
  return info[SK_MEMINFO_DROPS];
}

absl::StatusOr<std::unique_ptr<Monitor>> EventSocket::Watch(uint32_t own_port) {
  Leave();
  absl::StatusOr<Receiver> receiver = Receiver::Make(kEventBytes);
  if (!receiver.ok()) return receiver.status();
  if (absl::Status status = Join(); !status.ok()) return status;
  auto monitor = std::make_unique<EventMonitor>(*this, *std::move(receiver), own_port);
  current_ = monitor.get();
  return monitor;
}

// ---- WatchMode::kPoll ----

namespace {

class PollMonitor : public Monitor {
 public:
  PollMonitor(int timer, uint32_t seen, std::function<absl::StatusOr<uint32_t>()> read_generation,
              const OwnCommits& own)
      : timer_(timer), seen_(seen), read_generation_(std::move(read_generation)), own_(own) {}
  ~PollMonitor() override { close(timer_); }
  PollMonitor(const PollMonitor&) = delete;
  PollMonitor& operator=(const PollMonitor&) = delete;

  int fd() const override { return timer_; }

  absl::StatusOr<RulesetChanges> Drain() override {
    uint64_t expirations = 0;
    if (read(timer_, &expirations, sizeof(expirations)) < 0 && errno != EAGAIN && errno != EINTR) {
      return KernelError(errno, "reading a timer");
    }
    const absl::StatusOr<uint32_t> generation = read_generation_();
    if (!generation.ok()) return generation.status();
    const uint32_t before = std::exchange(seen_, *generation);
    RulesetChanges changes;
    if (before != *generation && !own_.Explain(before, *generation)) Record({}, changes);
    return changes;
  }

 private:
  int timer_;
  uint32_t seen_;
  std::function<absl::StatusOr<uint32_t>()> read_generation_;
  const OwnCommits& own_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Monitor>> NewPollMonitor(
    std::function<absl::StatusOr<uint32_t>()> read_generation, const OwnCommits& own) {
  const absl::StatusOr<uint32_t> generation = read_generation();
  if (!generation.ok()) return generation.status();
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (timer < 0) return KernelError(errno, "making a timer");
  auto monitor = std::make_unique<PollMonitor>(timer, *generation, std::move(read_generation), own);
  const itimerspec period = {.it_interval = kPollPeriod, .it_value = kPollPeriod};
  if (timerfd_settime(timer, 0, &period, nullptr) != 0)
    return KernelError(errno, "setting a timer");
  return monitor;
}

}  // namespace kipt::netlink
