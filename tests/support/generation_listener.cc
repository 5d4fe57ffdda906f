// SPDX-License-Identifier: Apache-2.0
#include "tests/support/generation_listener.h"

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"

namespace kipt::testing {
namespace {

constexpr int kReceiveBufferBytes = 8 << 20;

int ReadAttribute(const nlattr* attribute, void* data) {
  auto& change = *static_cast<GenerationChange*>(data);
  switch (mnl_attr_get_type(attribute)) {
    case NFTA_GEN_ID:
      change.generation = ntohl(mnl_attr_get_u32(attribute));
      break;
    case NFTA_GEN_PROC_PID:
      change.pid = ntohl(mnl_attr_get_u32(attribute));
      break;
    case NFTA_GEN_PROC_NAME:
      change.process = mnl_attr_get_str(attribute);
      break;
    default:
      break;
  }
  return MNL_CB_OK;
}

int ReadMessage(const nlmsghdr* message, void* data) {
  if (message->nlmsg_type != ((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_NEWGEN)) return MNL_CB_OK;
  GenerationChange change;
  mnl_attr_parse(message, sizeof(nfgenmsg), ReadAttribute, &change);
  static_cast<std::vector<GenerationChange>*>(data)->push_back(std::move(change));
  return MNL_CB_OK;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GenerationListener>> GenerationListener::Create() {
  std::unique_ptr<GenerationListener> listener(
      new GenerationListener(mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC | SOCK_NONBLOCK)));
  mnl_socket* socket = listener->socket_.get();
  if (socket == nullptr) return absl::ErrnoToStatus(errno, "mnl_socket_open2");
  if (mnl_socket_bind(socket, 1U << (NFNLGRP_NFTABLES - 1), MNL_SOCKET_AUTOPID) < 0) {
    return absl::ErrnoToStatus(errno, "joining NFNLGRP_NFTABLES");
  }
  if (setsockopt(listener->fd(), SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBufferBytes,
                 sizeof(kReceiveBufferBytes)) < 0) {
    return absl::ErrnoToStatus(errno, "SO_RCVBUFFORCE");
  }
  return listener;
}

GenerationListener::GenerationListener(mnl_socket* socket) : socket_(socket, mnl_socket_close) {}

int GenerationListener::fd() const { return mnl_socket_get_fd(socket_.get()); }

absl::StatusOr<std::vector<GenerationChange>> GenerationListener::Drain() {
  std::vector<GenerationChange> changes;
  std::vector<char> buffer(1 << 16);
  for (;;) {
    const ssize_t size = mnl_socket_recvfrom(socket_.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EAGAIN) return changes;
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == ENOBUFS) return absl::ResourceExhaustedError("notifications lost");
    if (size < 0) return absl::ErrnoToStatus(errno, "receiving notifications");
    if (mnl_cb_run(buffer.data(), static_cast<size_t>(size), 0, 0, ReadMessage, &changes) < 0) {
      return absl::ErrnoToStatus(errno, "a notification could not be read");
    }
  }
}

}  // namespace kipt::testing
