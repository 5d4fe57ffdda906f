// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/audit_parts.h
//
// The parts of an audit: how they report, and each of them, which audit.cc calls once; and those of
// an explanation. Not installed.
#ifndef KIPT_AGENT_AUDIT_AUDIT_PARTS_H_
#define KIPT_AGENT_AUDIT_AUDIT_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/audit/audit.h"

namespace kipt::agent {

// Gathers what the parts find. Findings that agree in kind, iptables mode, family, chain, owner and
// `variant` are one, with a count and the words of the first. The allow list is applied before,
// rule by rule.
class FindingCollector {
 public:
  explicit FindingCollector(const AuditOptions& options) : options_(options) {}

  const AuditOptions& options() const { return options_; }
  // Of what is added from now on.
  void SetNamespace(const std::string& netns) { netns_ = netns; }
  // Whether the survey has counters: some rule's is not zero.
  void SetCounted(bool counted) { counted_ = counted; }
  bool counted() const { return counted_; }

  void AddRule(AuditFinding finding, AuditedRule rule, const std::string& variant = "");
  void AddDetail(AuditFinding finding, const std::string& detail, const std::string& variant = "");
  // With its rules, details and count. The allow list cannot name them one by one.
  void AddSum(AuditFinding finding, const std::string& variant = "");

  // Everything so far, with what the allow list's unused entries come to. Call once, last.
  AuditReport Finish();

 private:
  AuditFinding& At(AuditFinding finding, const std::string& allowed_text,
                   const std::string& variant);

  const AuditOptions& options_;
  std::string netns_;
  bool counted_ = false;
  // With the namespace, and the line of the entry that allows it or 0.
  using Key = std::tuple<AuditKind, std::string, std::string, std::string, std::string, Owner,
                         std::string, size_t>;
  std::map<Key, size_t> places_;
  std::vector<AuditFinding> findings_;
  std::set<size_t> used_entries_;
};

// ---- what becomes of kubelet's chains, and what those who use them can do ----

enum class ChainFuture : uint8_t {
  kKept,         // this agent goes on making it
  kKeptByProxy,  // kube-proxy does
  kEmpty,        // kube-proxy makes it, and leaves it empty
  kGone,         // nobody makes it; what stands, stands until a reboot or a flush
  kPrivate,      // not kubelet's: this agent makes it for itself, with ConnLabelMarking
};

// Of TABLE/CHAIN, one of kubelet's or of this agent's.
ChainFuture FutureOf(absl::string_view chain, const KubeProxyFacts& proxy);

// "Once IPTablesOwnershipCleanup is on, ", or that it is.
std::string WhenGateIsOn(Mode mode);

// What becomes of rules that use `chain`: a whole sentence.
std::string ConsequenceForUsers(absl::string_view chain, const KubeProxyFacts& proxy, Mode mode);

// What the owner of such a rule can do.
std::string RemedyForUsers(absl::string_view chain, Owner owner);

// "kube-proxy 1.23 (iptables mode)".
std::string ProxyText(const KubeProxyFacts& proxy);

// ---- the parts ----

// Rules that jump to one chain of kubelet's.
struct ChainUse {
  // Count, packets and examples.
  AuditFinding by_kube_proxy = {};
  size_t by_others = 0;

  size_t all() const { return by_kube_proxy.count + by_others; }
};

struct FamilyAudit {
  FindingCollector& findings;
  FamilyChains chains;
  KubeProxyFacts proxy;
  // By "nat/KUBE-MARK-MASQ".
  std::map<std::string, ChainUse> uses = {};

  // A finding of this iptables mode and family.
  AuditFinding About(AuditKind kind, AuditSeverity severity, absl::string_view chain = "",
                     Owner owner = Owner::kUnknown) const;
};

// Some rule's is not zero.
bool HasCounters(const netlink::Survey& survey);

// Every rule of the iptables tables: who uses kubelet's chains, who stands in them. Fills
// `audit.uses`.
void AuditRules(FamilyAudit& audit);
// Every rule of every table, iptables' or not: who sets and tests our mark bits. `families`: of the
// same survey.
void AuditMarks(const netlink::Survey& survey, const std::vector<FamilyAudit>& families,
                FindingCollector& findings);
// Whether kubelet's chains do what those who use them expect, and which kube-proxy does.
void AuditChains(FamilyAudit& audit);
// What is no rule: CNI configurations, routing rules, route_localnet, problems.
void AuditSurroundings(const NodeView& view, const std::vector<FamilyAudit>& families,
                       FindingCollector& findings);

// A node may have rules in nft's tables and in legacy ones: both hooks run, one after the other.
// That is no error in itself; what matters is where they meet.
//
// How they do, in each family: kTwoHints, kSameChainInBothModes, kShadowedByOtherMode or
// kBothModesInUse; details are chains or rules, "nat/KUBE-SERVICES", "legacy filter/INPUT has the
// policy DROP". Nothing where fewer than two surveys have rules in iptables' tables. Only one
// survey of each mode is read.
//
// kInfo: rules in both modes that do not meet. kWarning: one mode decides what a jump of ours in
// the other was to decide; or a chain of Kubernetes' that is in use in one mode stands unused, but
// not empty, in the other. kError: such a chain in use in both; or both modes have
// KUBE-IPTABLES-HINT, so that others cannot tell which mode the node uses.
std::vector<AuditFinding> FindModeMeetings(absl::Span<const netlink::Survey> surveys);

// ---- the words of a rule, for explanations ----

// As iptables-save spells it. Tolerant: what is not known is kept as text, and any bytes give an
// answer. Only explanations read text: findings, owners and kube-proxy's release come from the
// values of netlink::SurveyRule.

// An option's argument, "!" in front of the option taken off.
struct RuleWord {
  absl::string_view text = {};
  bool negated = false;

  explicit operator bool() const { return !text.empty(); }
};

// Views of the text that was parsed. An option that is not there is empty.
struct RuleWords {
  RuleWord source;       // -s: "10.244.0.0/16"
  RuleWord destination;  // -d
  RuleWord in_interface;
  RuleWord out_interface;
  RuleWord protocol;
  RuleWord source_port;       // --sport, --sports
  RuleWord destination_port;  // --dport, --dports: "80", "30000:32767", "80,443"
  RuleWord source_type;       // -m addrtype --src-type: "LOCAL"
  RuleWord destination_type;
  RuleWord mark;      // -m mark --mark: "0x4000/0x4000"
  RuleWord ct_state;  // --ctstate, --state
  // -m connlabel --label: "114", without quotes. `sets_label`: with --set.
  RuleWord conn_label;
  bool sets_label = false;
  // -m set --match-set: the set's name, and "dst,dst".
  RuleWord set;
  absl::string_view set_flags = {};
  // -m statistic --probability, as printed; empty for other statistics.
  RuleWord probability;
  // Without quotes. Of several comments all, joined by "; ".
  std::string comment = {};
  // Matches that are not understood, as they stand: "-m physdev --physdev-in veth0".
  std::vector<absl::string_view> others = {};
  // The target or chain of -j or -g, and what stands behind it.
  absl::string_view target = {};
  absl::string_view target_arguments = {};

  // The argument of a target's option: "--to-destination". Empty where it is not there.
  absl::string_view TargetArgument(absl::string_view option) const;
};

// `text` must outlive the answer.
RuleWords ParseRuleWords(absl::string_view text);
RuleWords ParseRuleWords(std::string&&) = delete;

// Which packets: "a tcp packet from outside 10.244.0.0/16 to 10.96.0.10 port 9153", "every packet".
std::string PacketText(const RuleWords& words);

// And what is done with them: "every packet gets mark bit 14 (0x4000)".
std::string RuleSentence(const RuleWords& words);

// The address of a prefix that names one host, "10.0.0.1/32" or "10.0.0.1" or "fd00::1/128"; empty
// where it names more.
absl::string_view SingleHost(absl::string_view prefix);

// The service or service port that a comment of kube-proxy's is about, "kube-system/kube-dns:dns".
// Empty where it names none. A view of `comment`.
absl::string_view ServiceInComment(absl::string_view comment);

// ---- chains in plain words ----

// A sentence or two. Of a chain that nobody here knows: who owns it, as far as names tell.
std::string ChainMeaning(absl::string_view table, absl::string_view chain, bool base);

// Who put the chain that stands there, with the reason for thinking so.
std::string ChainMaker(const FamilyChains& chains, const KubeProxyFacts& proxy,
                       absl::string_view table, absl::string_view chain);

// What becomes of packets behind the chain, point by point; empty where its own rules say it all.
std::vector<std::string> WhereNext(const FamilyChains& chains, absl::string_view table,
                                   absl::string_view chain);

// ---- text ----

// `text` in lines of at most 96 columns, each indented by `indent` spaces, the first led in by
// `lead`, which stands in that indentation; ends with a newline. Words are not cut.
std::string Wrapped(absl::string_view text, size_t indent, absl::string_view lead = "");

// "1 rule", "2 rules".
std::string Counted(uint64_t count, absl::string_view noun);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_PARTS_H_
