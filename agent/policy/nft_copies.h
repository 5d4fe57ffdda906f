// SPDX-License-Identifier: Apache-2.0
//
// `nft list ruleset > FILE` saves iptables' rules in nft's own words, and loading FILE makes native
// rules of them: without comments, some with another meaning, and iptables cannot list most. Here
// such copies of kubelet's rules are recognized, and tables that iptables calls incompatible. Pure.
#ifndef KIPT_AGENT_POLICY_NFT_COPIES_H_
#define KIPT_AGENT_POLICY_NFT_COPIES_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/policy/diff.h"
#include "agent/policy/ownership.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

struct NftCopy {
  KubeletForm form;
  netlink::Rule rule;  // of which it is a copy
  // It does something else: nft turns "none of RELATED, ESTABLISHED, DNAT" into "DNAT".
  bool wrong = false;
};

// `rule` of `chain`, as a copy. Exact: a rule of one expression more or less is another program's.
std::optional<NftCopy> RecognizeCopy(const netlink::ChainId& chain,
                                     const netlink::ObservedRule& rule);
// `rule` is one that iptables 1.8.8 and later may have written, too: "drop what is marked" without
// its comment.
bool MayBeCopy(const netlink::ChainId& chain, const netlink::ObservedRule& rule);

// `observed` for a diff, where some family has copies. There, rules that may be copies are
// recognized as such, if a copy in KUBE-MARK-DROP sets the mark. Those that do the work in chains
// that a live kube-proxy writes, too, are what they are copies of: they stay. Nothing without
// copies.
std::optional<netlink::Snapshot> WithCopiesRead(const netlink::Snapshot& observed);

// Rules that an iptables-nft cannot list, by the table.
class UnlistableRules {
 public:
  // Those of the diff, which outlive this; they show which rules it deletes.
  explicit UnlistableRules(const std::vector<Change>& changes) : changes_(changes) {}

  // Takes any rule.
  void Add(const netlink::ChainId& chain, const netlink::ObservedRule& rule);
  // One finding, TableIncompatible, for each table; repaired once all are removed.
  std::vector<Finding> Findings() const;

 private:
  struct Seen {
    netlink::ChainId chain;
    std::string rule;
    bool copy = false;
    size_t left = 0;
    size_t gone = 0;
  };
  const std::vector<Change>& changes_;
  std::map<std::pair<netlink::Family, netlink::Table>, Seen> tables_;
};

// Why a copy is removed.
inline constexpr char kSupersededCopy[] =
    "superseded: nft loaded this copy from a saved ruleset (nft list ruleset)";

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_NFT_COPIES_H_
