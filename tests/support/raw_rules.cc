// SPDX-License-Identifier: Apache-2.0
#include "tests/support/raw_rules.h"

#include <endian.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace kipt::testing {
namespace {

using Rules = std::map<RawRuleId, std::string>;

struct RawRule {
  RawRuleId id;
  std::string bytes;
};

int ReadAttribute(const nlattr* attribute, void* data) {
  auto& rule = *static_cast<RawRule*>(data);
  switch (mnl_attr_get_type(attribute)) {
    case NFTA_RULE_TABLE:
      rule.id.table = mnl_attr_get_str(attribute);
      break;
    case NFTA_RULE_CHAIN:
      rule.id.chain = mnl_attr_get_str(attribute);
      break;
    case NFTA_RULE_HANDLE:
      rule.id.handle = be64toh(mnl_attr_get_u64(attribute));
      break;
    case NFTA_RULE_POSITION:
      return MNL_CB_OK;
    default:
      break;
  }
  rule.bytes.append(reinterpret_cast<const char*>(attribute), attribute->nla_len);
  return MNL_CB_OK;
}

int ReadMessage(const nlmsghdr* message, void* data) {
  RawRule rule;
  rule.id.family = static_cast<const nfgenmsg*>(mnl_nlmsg_get_payload(message))->nfgen_family;
  mnl_attr_parse(message, sizeof(nfgenmsg), ReadAttribute, &rule);
  static_cast<Rules*>(data)->emplace(std::move(rule.id), std::move(rule.bytes));
  return MNL_CB_OK;
}

}  // namespace

absl::StatusOr<Rules> ReadRawRules() {
  constexpr uint32_t kSequence = 1;
  const std::unique_ptr<mnl_socket, int (*)(mnl_socket*)> socket(
      mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC), mnl_socket_close);
  if (socket == nullptr || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) < 0) {
    return absl::ErrnoToStatus(errno, "netlink socket");
  }
  std::vector<char> buffer(1 << 16);
  nlmsghdr* request = mnl_nlmsg_put_header(buffer.data());
  request->nlmsg_type = (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETRULE;
  request->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request->nlmsg_seq = kSequence;
  // A zeroed nfgenmsg: AF_UNSPEC, every family.
  mnl_nlmsg_put_extra_header(request, sizeof(nfgenmsg));
  if (mnl_socket_sendto(socket.get(), request, request->nlmsg_len) < 0) {
    return absl::ErrnoToStatus(errno, "NFT_MSG_GETRULE");
  }
  Rules rules;
  for (;;) {
    const ssize_t size = mnl_socket_recvfrom(socket.get(), buffer.data(), buffer.size());
    if (size < 0) return absl::ErrnoToStatus(errno, "receiving rules");
    const int more = mnl_cb_run(buffer.data(), static_cast<size_t>(size), kSequence,
                                mnl_socket_get_portid(socket.get()), ReadMessage, &rules);
    if (more < 0 && errno == EINTR) return absl::AbortedError("the ruleset was changed");
    if (more < 0) return absl::ErrnoToStatus(errno, "reading rules");
    if (more == 0) return rules;
  }
}

}  // namespace kipt::testing
