// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/allow_list.h
//
// Findings that an operator knows of and accepts: --allow=FILE. One a line:
//
//   KIND [nft|legacy] TABLE/CHAIN [TEXT] [# REASON]
//
//   # until the pools are rebuilt without externalSetMarkChain
//   ChainUser nat/KUBE-MARK-MASQ -A CNI-DN-  # portmap
//   ChainUser legacy *  -s 10.9.0.0/16       # the old VPN gateway
//   IpRuleFwmark *
//
// KIND is a finding's id and TABLE/CHAIN the chain that it is about, "*" any. TEXT must stand in
// the finding's rule, printed as "-A CHAIN RULE" (for a CNI configuration: in its path, for a
// routing rule: in its text); it goes on to the end of the line, or to the last " # ". Empty lines
// and lines that begin with "#" say nothing.
#ifndef KIPT_AGENT_AUDIT_ALLOW_LIST_H_
#define KIPT_AGENT_AUDIT_ALLOW_LIST_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::agent {

struct AllowEntry {
  size_t line = 0;            // in the file, from 1
  std::string kind;           // or "*"
  std::string iptables_mode;  // "nft", "legacy"; empty: any
  std::string chain;          // "nat/KUBE-MARK-MASQ", or "*"
  std::string text;           // empty: any
  std::string reason;

  bool operator==(const AllowEntry&) const = default;
};

// "line 3: ChainUser nat/KUBE-MARK-MASQ -A CNI-DN-".
std::string ToString(const AllowEntry& entry);

struct AllowList {
  std::vector<AllowEntry> entries = {};

  // The first entry that covers a finding; null where none does.
  const AllowEntry* Find(absl::string_view kind, absl::string_view iptables_mode,
                         absl::string_view chain, absl::string_view text) const;

  bool operator==(const AllowList&) const = default;
};

// InvalidArgument, with the number of the line: a kind that no finding has, something else than a
// chain where one must stand, an entry twice.
absl::StatusOr<AllowList> ParseAllowList(absl::string_view text);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_ALLOW_LIST_H_
