// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/audit_parts.h
//
// The parts of an audit: what they look at, how they report, and each of them, which audit.cc calls
// once. Not installed.
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
#include "agent/audit/audit.h"
#include "agent/audit/audit_finding.h"
#include "agent/audit/family_chains.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/audit/node_view.h"

namespace kipt::agent {

// Gathers what the parts find. Findings that agree in kind, iptables mode, family, chain, owner and
// `variant` are one, with a count and the words of the first. The allow list is applied before,
// rule by rule.
class FindingCollector {
 public:
  explicit FindingCollector(const AuditOptions& options) : options_(options) {}

  void SetNamespace(const std::string& netns) { netns_ = netns; }

  // `counted`: the survey has counters.
  void AddRule(AuditFinding finding, AuditedRule rule, bool counted,
               const std::string& variant = "");
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
  size_t by_kube_proxy = 0;
  uint64_t kube_proxy_packets = 0;
  std::vector<AuditedRule> kube_proxy_examples = {};
  size_t by_others = 0;

  size_t all() const { return by_kube_proxy + by_others; }
};
// By "nat/KUBE-MARK-MASQ".
using ChainUses = std::map<std::string, ChainUse>;

struct FamilyAudit {
  FamilyChains chains;
  KubeProxyFacts proxy;
  // The survey has counters: some rule's is not zero.
  bool counted = false;
  ChainUses uses = {};
};

bool HasCounters(const netlink::Survey& survey);

// Every rule of the iptables tables: who uses kubelet's chains, who stands in them. Fills
// `audit.uses`.
void AuditRules(FamilyAudit& audit, const AuditOptions& options, FindingCollector& findings);
// Every rule of every table, iptables' or not: who sets and tests our mark bits. `families`: of the
// same survey.
void AuditMarks(const netlink::Survey& survey, bool counted,
                const std::vector<FamilyAudit>& families, const AuditOptions& options,
                FindingCollector& findings);
// Whether kubelet's chains do what those who use them expect.
void AuditChainState(const FamilyAudit& audit, FindingCollector& findings);
void AuditKubeProxy(const FamilyAudit& audit, const AuditOptions& options,
                    FindingCollector& findings);
// What is no rule: CNI configurations, routing rules, route_localnet, problems.
void AuditSurroundings(const NodeView& view, const std::vector<FamilyAudit>& families,
                       const AuditOptions& options, FindingCollector& findings);

// ---- text ----

// `text` in lines of at most 96 columns, each indented by `indent` spaces, the first led in by
// `lead`, which stands in that indentation; ends with a newline. Words are not cut.
std::string Wrapped(absl::string_view text, size_t indent, absl::string_view lead = "");

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_PARTS_H_
