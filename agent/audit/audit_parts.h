// SPDX-License-Identifier: Apache-2.0
//
// The parts of an audit: each reports to a FindingCollector, and audit.cc calls each once. Advice
// and words that they share.
#ifndef KIPT_AGENT_AUDIT_AUDIT_PARTS_H_
#define KIPT_AGENT_AUDIT_AUDIT_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/audit/audit.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {

inline constexpr absl::string_view kMarkMasqPlace = "nat/KUBE-MARK-MASQ";
inline constexpr absl::string_view kMarkDropPlace = "nat/KUBE-MARK-DROP";
inline constexpr absl::string_view kPostroutingPlace = "nat/KUBE-POSTROUTING";

// Of kube-proxy's nftables mode, in family ip and ip6.
inline constexpr absl::string_view kNftablesProxyTable = "kube-proxy";

inline std::string HexText(uint32_t bits) { return absl::StrCat("0x", absl::Hex(bits)); }

// An audit before `change` may have findings of `kind`.
bool CanFind(NodeChange change, AuditKind kind);

// Gathers findings. Those with the same kind, iptables mode, family, chain, owner and `variant` are
// one, with a count and the words of the first. The allow list is applied before, to each rule.
class FindingCollector {
 public:
  explicit FindingCollector(const AuditOptions& of) : options(of) {}

  const AuditOptions& options;
  // Of what is added from now on.
  std::string netns;
  bool counted = false;  // HasCounters

  void AddRule(AuditFinding finding, AuditedRule rule, const std::string& variant = "");
  void AddDetail(AuditFinding finding, const std::string& detail, const std::string& variant = "");
  // With its rules, details and count, which no entry of the allow list can name.
  void AddSum(AuditFinding finding, const std::string& variant = "");
  // To the finding of rules that are kept: more of them.
  void AddLeftOut(AuditFinding finding, const LeftOutRules& rules);
  // CanFind of this change. The others are not taken.
  bool Collects(AuditKind kind) const;

  // Writes everything so far, and those unused entries of the allow list that are not for an audit
  // before another change. Call once, last.
  void Finish(AuditReport& report);

 private:
  AuditFinding& At(AuditFinding finding, const std::string& allowed_text,
                   const std::string& variant);

  // With the namespace, and the line of the entry that allows it or 0.
  using Key = std::tuple<AuditKind, std::string, std::string, std::string, std::string, Owner,
                         std::string, size_t>;
  std::map<Key, size_t> places_;
  std::vector<AuditFinding> findings_;
  std::set<size_t> used_entries_;
};

// ---- what becomes of kubelet's chains, and what their users can do ----

enum class ChainFuture : uint8_t {
  kKept,         // by kubelet, or by this agent
  kKeptByProxy,  // kube-proxy writes it
  kEmpty,        // kube-proxy makes it, and leaves it empty
  kGone,         // no program makes it: it exists until a reboot or a flush
  kPrivate,      // this agent makes it for itself, with ConnLabelMarking
};

// `chain` is TABLE/CHAIN, one of kubelet's or of this agent's.
ChainFuture FutureOf(absl::string_view chain, const KubeProxyFacts& proxy,
                     const AuditOptions& options);

// Of rules that use `chain`: an error where it will do nothing.
AuditSeverity SeverityOfUse(absl::string_view chain, const KubeProxyFacts& proxy,
                            const AuditOptions& options);

// "Once IPTablesOwnershipCleanup is on, ", or that it is; or once kube-proxy is in nftables mode.
std::string WhenChanged(const AuditOptions& options);

// What becomes of rules that use `chain`: a whole sentence. And what their owner can do.
std::string ConsequenceForUsers(absl::string_view chain, const KubeProxyFacts& proxy,
                                const AuditOptions& options);
std::string RemedyForUsers(absl::string_view chain, Owner owner);

// "kube-proxy 1.23 (iptables mode)".
std::string ProxyText(const KubeProxyFacts& proxy);

// ---- the parts ----

// Rules that jump to one chain of kubelet's.
struct ChainUse {
  AuditFinding by_kube_proxy = {};  // count, packets and examples
  size_t all = 0;                   // with those of others
};

struct FamilyAudit {
  FindingCollector& findings;
  FamilyChains chains;
  KubeProxyFacts proxy;
  KubeProxyFacts after;                       // with the change
  absl::Span<const netlink::Survey> surveys;  // of the network namespace
  const LeftOut* left_out = nullptr;          // of the survey; null where it is whole
  // "the table ip kube-proxy": of any survey of the view, and either family.
  std::vector<std::string> nftables_proxy = {};
  std::map<std::string, ChainUse> uses = {};  // by "nat/KUBE-MARK-MASQ"

  // `finding` as one of this iptables mode and family.
  AuditFinding Here(AuditFinding finding) const {
    finding.iptables_mode = chains.survey().mode;
    finding.family = chains.name();
    return finding;
  }
};

// As examples show `rule`.
inline AuditedRule Audited(const netlink::TableId& table, const std::string& chain,
                           const netlink::SurveyRule& rule) {
  return {.chain = chain, .text = ToString(table, rule), .packets = rule.counters.packets};
}

// Some rule's counter is not zero.
bool HasCounters(const netlink::Survey& survey);

// Every rule of the iptables tables: which use kubelet's chains, which are in them. Fills
// `audit.uses`.
void AuditRules(FamilyAudit& audit);
// Every rule of every table: which set and test our mark bits. `families` is of the same survey.
void AuditMarks(const netlink::Survey& survey, const std::vector<FamilyAudit>& families,
                FindingCollector& findings);
// Rules that clear our mark bits after KUBE-MARK-* has set them, and before they are acted on.
// `families` are those of all surveys of `view`.
void AuditClearedMarks(const NodeView& view, const std::vector<FamilyAudit>& families,
                       FindingCollector& findings);
// Whether kubelet's chains do what their users expect, and which kube-proxy does.
void AuditChains(FamilyAudit& audit);
// What WireGuard interfaces and tc filters do with our mark bits.
void AuditDeviceMarks(const NodeView& view, const std::vector<FamilyAudit>& families,
                      FindingCollector& findings);
// That, CNI configurations, routing rules, route_localnet, problems.
void AuditSurroundings(const NodeView& view, const std::vector<FamilyAudit>& families,
                       FindingCollector& findings);
// Whether kubelet will give up a family, or has.
void AuditProbe(const NodeView& view, const std::vector<FamilyAudit>& families,
                FindingCollector& findings);
// What `findings.options.change` breaks beyond the above.
void AuditChange(const NodeView& view, const std::vector<FamilyAudit>& families,
                 FindingCollector& findings);

// Notes in `view` that `what` was not read.
void AddProblem(NodeView& view, absl::string_view what, const absl::Status& status);

// Rules with chains of Kubernetes in files that are loaded at boot, into `view.facts`.
void ReadBootRules(const class NodeFiles& node, NodeView& view);

// Fills `view.facts` with what any of `changes` depends on, for the calling thread's namespace. Its
// surveys are there already.
void GatherChangeFacts(const ModeSources& sources, absl::Span<const NodeChange> changes,
                       NodeView& view);

// Where the rules of two iptables modes meet, in each family. The kernel runs the hooks of both,
// which is no error in itself. Reads the first survey of each mode; none without both.
//
// kInfo: both have rules that do not meet. kWarning: one mode decides before a jump of ours in the
// other; or a chain of Kubernetes' is used in one, and left over with rules in the other. kError:
// both use such a chain; or a program that reads the hint cannot tell the node's mode.
std::vector<AuditFinding> FindModeMeetings(absl::Span<const netlink::Survey> surveys);

// ---- who acts on a mark ----

enum class MarkAction : uint8_t { kMasquerade, kDrop };

// A chain with such a rule.
struct MarkActor {
  std::string iptables_mode = {};
  netlink::TableId table = {};
  std::string chain = {};

  bool operator==(const MarkActor&) const = default;
};
// "chain masquerading of table ip kube-proxy"; with the mode where that is not `mode`.
std::string ToString(const MarkActor& actor, absl::string_view mode);

// The chains that masquerade packets that leave, or drop packets to this node, of `family`, because
// they bear all of `bits`, or whatever they bear. One walk from the base chains of every table of
// `surveys`, by hook: packets have one mark, in all tables and in both iptables modes. A rule with
// another condition counts as one that some packets match.
std::vector<MarkActor> WhatActsOn(absl::Span<const netlink::Survey> surveys, netlink::Family family,
                                  uint32_t bits, MarkAction action);

// ---- chains in plain words ----

// The chain that acts on the mark or label of a chain of table nat, and its jumps.
struct Listener {
  absl::string_view from;
  absl::string_view table;
  absl::string_view chain;
  absl::string_view bases;  // "INPUT OUTPUT"
  // "%s" is "INPUT leads", of the bases that jump to it; "%n", how many packets they led there.
  absl::string_view heard;
  absl::string_view unheard;  // of the others
};
inline constexpr Listener kListeners[] = {
    {kMarkMasqChain, "nat", kPostroutingChain, "POSTROUTING",
     "When it leaves, %s every connection's first packet to nat/KUBE-POSTROUTING%n: marked packets "
     "are masqueraded, the rest return.",
     "no rule acts on the mark, and the packet keeps its source"},
    {kMarkDropChain, "filter", kFirewallChain, "INPUT OUTPUT",
     "In table filter, %s to filter/KUBE-FIREWALL, which drops marked packets if it has its rule "
     "for the mark. Forwarded packets pass neither INPUT nor OUTPUT, and are not dropped.",
     "no rule acts on the mark, and the packet passes"},
    {kLabelMasqChain, "nat", kLabelPostroutingChain, "POSTROUTING",
     "When it leaves, %s every connection's first packet to nat/KUBELET-POSTROUTING: labelled ones "
     "are masqueraded, the rest return.",
     "no rule acts on the label"},
    {kLabelDropChain, "filter", kLabelFirewallChain, "INPUT FORWARD OUTPUT",
     "In table filter, %s to filter/KUBELET-FIREWALL, which drops labelled packets for as long as "
     "the connection lasts.",
     "no rule acts on the label"},
};

// OwnerOfChain, but kube-proxy's where it alone keeps a chain that it shares with kubelet: kubelet
// leaves KUBE-MARK-MASQ and KUBE-POSTROUTING to it with KUBE-MARK-DROP (1.28, or the gate).
Owner KeeperOfChain(const FamilyChains& chains, const KubeProxyFacts& proxy,
                    absl::string_view table, absl::string_view chain, bool base);

// A sentence or two; for a chain that this agent does not know, its likely owner.
std::string ChainMeaning(absl::string_view table, absl::string_view chain, bool base);

// Who put the chain there, and how that is known.
std::string ChainMaker(const FamilyChains& chains, const KubeProxyFacts& proxy,
                       absl::string_view table, absl::string_view chain);

// Where packets go after the chain, point by point; empty where its own rules show it all.
// `surveys` are those of the network namespace.
std::vector<std::string> WhereNext(const FamilyChains& chains, absl::string_view table,
                                   absl::string_view chain,
                                   absl::Span<const netlink::Survey> surveys);

// ---- text ----

// As audit prints it, in several lines.
std::string FindingText(const AuditFinding& finding, size_t columns = 96);

// "1 rule", "2 rules".
std::string Counted(uint64_t count, absl::string_view noun);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_PARTS_H_
