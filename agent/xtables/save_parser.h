// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/save_parser.h
//
// iptables-save text as values. Strict about what is ours: a line becomes a Rule only if all of it
// is in the vocabulary of netlink/ruleset.h. Lossless about what is not: any other line becomes an
// OpaqueRule whose text is the line's, byte for byte.
#ifndef KIPT_AGENT_XTABLES_SAVE_PARSER_H_
#define KIPT_AGENT_XTABLES_SAVE_PARSER_H_

#include <map>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// Every chain of the tables mangle, nat and filter in `text`, which iptables-save printed (or
// ip6tables-save, for IPv6). Other tables are skipped. A rule's handle is its number in its chain,
// from 1. `hooked` is true for iptables' built-in chains (they have a policy). A rule has the
// counters in front of it ("[12:34]", of iptables-save -c); those behind chains are accepted and
// ignored.
//
// InvalidArgument, with the line's number, where the text is not a whole output of iptables-save:
// as ReadSave, and a table that comes twice.
absl::StatusOr<std::map<netlink::ChainId, netlink::ObservedChain>> ParseSave(
    netlink::Family family, absl::string_view text);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_SAVE_PARSER_H_
