// SPDX-License-Identifier: Apache-2.0
//
// Findings that an operator accepts: the file of --allow.
#ifndef KIPT_AGENT_AUDIT_ALLOW_LIST_H_
#define KIPT_AGENT_AUDIT_ALLOW_LIST_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::agent {

// Findings that an operator accepts: --allow=FILE. One a line:
//
//   KIND [nft|legacy] TABLE/CHAIN [TEXT] [# REASON]
//
//   # until the pools are rebuilt without externalSetMarkChain
//   ChainUser nat/KUBE-MARK-MASQ -A CNI-DN-  # portmap
//   ChainUser legacy *  -s 10.9.0.0/16       # the old VPN gateway
//   IpRuleFwmark *
//
// KIND is a finding's id, TABLE/CHAIN the chain that it is about; "*" is any. The finding's rule,
// printed as "-A CHAIN RULE", must contain TEXT (a CNI configuration: its path; a routing rule: its
// text). TEXT extends to the end of the line, or to the last " # ". Empty lines and lines that
// begin with "#" are ignored.
struct AllowEntry {
  size_t line = 0;            // in the file, from 1
  std::string kind;           // or "*"
  std::string iptables_mode;  // empty: any
  std::string chain;          // "nat/KUBE-MARK-MASQ", or "*"
  std::string text;           // empty: any
  std::string reason;

  bool Covers(absl::string_view kind, absl::string_view iptables_mode, absl::string_view chain,
              absl::string_view text) const;
  bool operator==(const AllowEntry&) const = default;
};
using AllowList = std::vector<AllowEntry>;

// "line 3: ChainUser nat/KUBE-MARK-MASQ -A CNI-DN-".
std::string ToString(const AllowEntry& entry);

// InvalidArgument, with the line's number: an unknown kind, no chain where one is required, an
// entry twice.
absl::StatusOr<AllowList> ParseAllowList(absl::string_view text);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_ALLOW_LIST_H_
