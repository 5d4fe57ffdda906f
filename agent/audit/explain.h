// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/explain.h
//
// What a chain is there for: every rule that leads to it, by what it is for; what the chain does;
// where packets go from there. Of kubelet's chains it knows the reasons, of others who owns them.
// Pure, over a survey of any origin.
#ifndef KIPT_AGENT_AUDIT_EXPLAIN_H_
#define KIPT_AGENT_AUDIT_EXPLAIN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/audit/audit.h"
#include "netlink/survey.h"

namespace kipt::agent {

// What a rule that leads to a chain is for.
enum class Purpose : uint8_t {
  // To nat/KUBE-MARK-MASQ:
  kOutsidePodRange,
  kHairpin,
  kExternal,
  kExternalFromNode,
  kExternalIp,
  kLoadBalancer,
  kNodePort,
  kNodePortLoopback,
  kMasqueradeAll,
  kHostPortHairpin,
  kHostPortLoopback,
  // To nat/KUBE-MARK-DROP:
  kSourceRanges,
  kNoLocalEndpoints,
  // To anything:
  kBaseJump,
  kThirdParty,
  kOther,
};
absl::string_view PurposeName(Purpose purpose);  // "OutsidePodRange", ...

// Rules that lead to the chain for one reason.
struct PurposeGroup {
  Purpose purpose = Purpose::kOther;
  std::string title = {};
  std::string reason = {};  // may be empty
  Owner owner = Owner::kUnknown;
  size_t count = 0;
  std::optional<uint64_t> packets = {};  // as AuditFinding::packets
  std::vector<AuditedRule> examples = {};
};

struct Explanation {
  std::string iptables_mode = {};
  std::string family = {};  // "ip", "ip6"
  std::string chain = {};   // "nat/KUBE-MARK-MASQ"
  Owner owner = Owner::kUnknown;
  std::string what = {};                   // what the chain is, in a sentence or two
  std::string maker = {};                  // who put it here
  std::vector<std::string> in_short = {};  // the answer, point by point
  size_t users = 0;                        // rules that lead to it
  std::vector<PurposeGroup> purposes = {};
  size_t rule_count = 0;
  std::vector<AuditedRule> rules = {};  // its own, in order: the first ten
  std::vector<std::string> next = {};   // where packets go from here
};

// `chain` is TABLE/CHAIN, or a name that stands in one table only.
//
// NotFound: no such chain; the message names chains of similar name. InvalidArgument: the name
// stands in several tables.
absl::StatusOr<Explanation> Explain(const netlink::Survey& survey, netlink::Family family,
                                    absl::string_view chain);

std::string ExplainText(const Explanation& explanation);
std::string ExplainJson(const Explanation& explanation);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_EXPLAIN_H_
