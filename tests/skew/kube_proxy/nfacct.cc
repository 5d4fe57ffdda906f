// SPDX-License-Identifier: Apache-2.0
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_acct.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/process/files.h"
#include "tests/skew/kube_proxy/proxy_rules.h"

namespace kipt::skew {
namespace {

// NFNL_MSG_ACCT_NEW with the name, and nothing else.
struct Request {
  nlmsghdr header = {};
  nfgenmsg family = {};
  nlattr attribute = {};
  char name[NFACCT_NAME_MAX] = {};
};

struct Answer {
  nlmsghdr header;
  nlmsgerr error;
};

bool EnsureCounter(const char* name) {
  const agent::OwnedFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
  if (!fd.valid()) return false;
  Request request;
  std::strncpy(request.name, name, sizeof request.name - 1);
  request.header.nlmsg_type = NFNL_SUBSYS_ACCT << 8 | NFNL_MSG_ACCT_NEW;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
  request.family = {.nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = 0};
  request.attribute.nla_type = NFACCT_NAME;
  request.attribute.nla_len = static_cast<uint16_t>(NLA_HDRLEN + std::strlen(name) + 1);
  request.header.nlmsg_len =
      offsetof(Request, attribute) + NLA_ALIGN(uint32_t{request.attribute.nla_len});
  if (send(fd.get(), &request, request.header.nlmsg_len, 0) != request.header.nlmsg_len) {
    return false;
  }
  Answer answer = {};
  if (recv(fd.get(), &answer, sizeof answer, 0) < static_cast<ssize_t>(sizeof answer)) return false;
  return answer.error.error == 0 || answer.error.error == -EEXIST || answer.error.error == -EBUSY;
}

}  // namespace

std::string Counted(const ProxySettings& settings, const char* counter) {
  if (!settings.nfacct || !Does(settings.version, Trait::kNfacct)) return "";
  return absl::StrCat("-m nfacct --nfacct-name ", counter);
}

bool EnsureCounters() {
  return EnsureCounter(kDroppedInvalid) && EnsureCounter(kAcceptedLocalhost);
}

}  // namespace kipt::skew
