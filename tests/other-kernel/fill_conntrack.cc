// SPDX-License-Identifier: Apache-2.0
//
// Usage: kipt_fill_conntrack COUNT
//
// Adds COUNT entries to connection tracking by ctnetlink: UDP, for an hour, half of them from
// 192.0.2.1. Many in one message, because conntrack(8) takes a system call and more for each.
// Prints how many the kernel has refused.
#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr uint32_t kCulprit = 0xc0000201;       // 192.0.2.1
constexpr uint32_t kOthers = 0x0a000000;        // 10.0.0.0
constexpr uint32_t kDestinations = 0xc6336400;  // 198.51.100.0
constexpr uint32_t kSeconds = 3600;
constexpr uint32_t kAtOnce = 100;
constexpr size_t kMessageBytes = 512;

struct Connection {
  uint32_t source;
  uint32_t destination;
  uint16_t source_port;
  uint16_t destination_port;
};

Connection ConnectionOf(uint32_t number) {
  return {.source = number % 2 == 0 ? kCulprit : kOthers + number,
          .destination = kDestinations + number % 20,
          .source_port = static_cast<uint16_t>(1024 + number % 60000),
          .destination_port = static_cast<uint16_t>(1 + number / 60000)};
}

void PutTuple(nlmsghdr* message, uint16_t type, const Connection& connection) {
  nlattr* tuple = mnl_attr_nest_start(message, type);
  nlattr* addresses = mnl_attr_nest_start(message, CTA_TUPLE_IP);
  mnl_attr_put_u32(message, CTA_IP_V4_SRC, htonl(connection.source));
  mnl_attr_put_u32(message, CTA_IP_V4_DST, htonl(connection.destination));
  mnl_attr_nest_end(message, addresses);
  nlattr* ports = mnl_attr_nest_start(message, CTA_TUPLE_PROTO);
  mnl_attr_put_u8(message, CTA_PROTO_NUM, IPPROTO_UDP);
  mnl_attr_put_u16(message, CTA_PROTO_SRC_PORT, htons(connection.source_port));
  mnl_attr_put_u16(message, CTA_PROTO_DST_PORT, htons(connection.destination_port));
  mnl_attr_nest_end(message, ports);
  mnl_attr_nest_end(message, tuple);
}

// The kernel answers errors only.
size_t PutEntry(char* at, uint32_t number) {
  nlmsghdr* message = mnl_nlmsg_put_header(at);
  message->nlmsg_type = (NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_NEW;
  message->nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL;
  message->nlmsg_seq = number;
  auto* head = static_cast<nfgenmsg*>(mnl_nlmsg_put_extra_header(message, sizeof(nfgenmsg)));
  head->nfgen_family = AF_INET;
  head->version = NFNETLINK_V0;
  const Connection connection = ConnectionOf(number);
  PutTuple(message, CTA_TUPLE_ORIG, connection);
  PutTuple(message, CTA_TUPLE_REPLY,
           {.source = connection.destination,
            .destination = connection.source,
            .source_port = connection.destination_port,
            .destination_port = connection.source_port});
  mnl_attr_put_u32(message, CTA_TIMEOUT, htonl(kSeconds));
  return NLMSG_ALIGN(message->nlmsg_len);
}

// How many errors wait to be read; the first is printed.
uint32_t Errors(mnl_socket* socket, uint32_t before) {
  std::array<char, 8192> buffer = {};
  uint32_t errors = 0;
  for (;;) {
    const ssize_t size =
        recv(mnl_socket_get_fd(socket), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size <= 0) return errors;
    const auto* message = reinterpret_cast<const nlmsghdr*>(buffer.data());
    if (message->nlmsg_type != NLMSG_ERROR) continue;
    const auto* error = static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(message));
    if (before + errors++ == 0) std::fprintf(stderr, "error %d\n", -error->error);
  }
}

int Fill(uint32_t count) {
  mnl_socket* socket = mnl_socket_open(NETLINK_NETFILTER);
  if (socket == nullptr || mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) != 0) {
    std::perror("netlink");
    return 2;
  }
  std::vector<char> batch(kAtOnce * kMessageBytes);
  uint32_t errors = 0;
  for (uint32_t number = 0; number < count;) {
    size_t used = 0;
    for (uint32_t i = 0; i < kAtOnce && number < count; ++i) {
      used += PutEntry(&batch[used], number++);
    }
    if (mnl_socket_sendto(socket, batch.data(), used) < 0) {
      std::perror("sending");
      return 2;
    }
    errors += Errors(socket, errors);
  }
  mnl_socket_close(socket);
  std::printf("%u refused\n", errors);
  return errors == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const long count = argc == 2 ? std::atol(argv[1]) : 0;
  if (count <= 0) {
    std::fprintf(stderr, "Usage: kipt_fill_conntrack COUNT\n");
    return 64;
  }
  return Fill(static_cast<uint32_t>(count));
}
