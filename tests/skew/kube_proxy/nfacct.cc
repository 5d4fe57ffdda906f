// SPDX-License-Identifier: Apache-2.0
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_acct.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "netlink/requests.h"
#include "netlink/socket.h"
#include "tests/skew/kube_proxy/proxy_rules.h"

namespace kipt::skew {

std::string Counted(const ProxySettings& settings, const char* counter) {
  if (!settings.nfacct || !Does(settings.version, Trait::kNfacct)) return "";
  return absl::StrCat("-m nfacct --nfacct-name ", counter);
}

bool EnsureCounters() {
  const absl::StatusOr<std::unique_ptr<netlink::Socket>> socket = netlink::Socket::Open();
  if (!socket.ok()) return false;
  bool made = true;
  for (const char* name : {kDroppedInvalid, kAcceptedLocalhost}) {
    netlink::Requests request((*socket)->ReserveSequences(1));
    // The kernel requires the name's last byte, too.
    request.Begin(NFNL_SUBSYS_ACCT << 8 | NFNL_MSG_ACCT_NEW, AF_UNSPEC, NLM_F_ACK | NLM_F_CREATE,
                  {{NFACCT_NAME, {name, std::strlen(name) + 1}}});
    const absl::Status asked = (*socket)->Ask(request, [&made](const netlink::Reply& reply) {
      const int error = reply.error_number;
      made = made && (error == 0 || error == EEXIST || error == EBUSY);
    });
    made = made && asked.ok();
  }
  return made;
}

}  // namespace kipt::skew
