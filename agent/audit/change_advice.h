// SPDX-License-Identifier: Apache-2.0
//
// The findings of changes and of kubelet's probe, as one table: kind, severity, where it is known
// from, what was found, what becomes of it, what to do. For change_findings.cc, and audit_chains.cc
// for the probe; and what to do about rules that kube-proxy left over.
#ifndef KIPT_AGENT_AUDIT_CHANGE_ADVICE_H_
#define KIPT_AGENT_AUDIT_CHANGE_ADVICE_H_

#include "agent/audit/finding.h"

namespace kipt::agent::advice {

struct Advice {
  AuditKind kind;
  AuditSeverity severity;
  const char* source;
  const char* message;
  const char* consequence;
  const char* remedy;
};
inline constexpr Advice Make(AuditKind kind, AuditSeverity severity, const char* source,
                             const char* message, const char* consequence, const char* remedy) {
  return {kind, severity, source, message, consequence, remedy};
}
inline AuditFinding FindingOf(const Advice& advice) {
  return {.kind = advice.kind,
          .severity = advice.severity,
          .message = advice.message,
          .consequence = advice.consequence,
          .remedy = advice.remedy,
          .source = advice.source};
}

using enum AuditKind;
inline constexpr AuditSeverity kError = AuditSeverity::kError;
inline constexpr AuditSeverity kWarning = AuditSeverity::kWarning;
inline constexpr AuditSeverity kInfo = AuditSeverity::kInfo;
inline constexpr char kCleanupCode[] = "cleanupLeftovers() of kubernetes' pkg/proxy/ipvs";

// kube-proxy --cleanup, of any release since 1.29, also deletes the tables of nftables mode, and a
// kube-proxy that runs in that mode does not make them again before it is restarted.
inline constexpr char kRemoveLeftovers[] =
    "Reboot: that removes all of them. kube-proxy --cleanup removes most, but only run it where no "
    "kube-proxy runs: it also deletes what nftables and IPVS mode use.";
inline constexpr char kRemoveNextToNftables[] =
    "Reboot. Or delete other programs' jumps to these chains, and restart kube-proxy, which then "
    "deletes the chains. Do not run kube-proxy --cleanup: it deletes the tables of nftables mode, "
    "and no service works.";

inline constexpr Advice kJumpLost =
    Make(kKubeProxyJumpLost, kError, "",
         "a jump of kube-proxy's is missing: another program deleted it, or kube-proxy is gone",
         "Packets no longer reach these chains: services might not answer, or bypass their rules.",
         "Find the program that deleted it (the log of run names it), and restart kube-proxy, "
         "which makes "
         "its jumps at its start. If kube-proxy is gone for good, reboot.");

inline constexpr char kOfTheProbe[] =
    "At its next start kubelet makes no hint, no KUBE-FIREWALL and no canary for this family, "
    "often without a log line, and never tries again. kube-proxy in iptables mode ends; its "
    "--cleanup and its change to nftables mode leave its old rules in force.";
inline constexpr Advice kProbeRule = Make(
    kIptablesProbeFails, kError, "#129826",
    "iptables cannot list nat/POSTROUTING because of native rules: kubelet 1.33 and later gives up "
    "this family when it starts",
    kOfTheProbe, "Move these rules to a table of their own (nft add table).");
inline constexpr Advice kProbeLock =
    Make(kIptablesProbeFails, kWarning, "#129826",
         "a process keeps holding the iptables-legacy lock: kubelet 1.33 and later gives up both "
         "families if it starts meanwhile",
         kOfTheProbe, "Find out why the process does not end, and end it.");
inline constexpr Advice kProbeModule = Make(
    kIptablesProbeFails, kWarning, "#129826",
    "the kernel has no table nat for iptables: kubelet 1.33 and later gives up the family when it "
    "starts",
    kOfTheProbe, "Install the kernel's module.");
inline constexpr Advice kSkipped = Make(
    kFamilySkipped, kError, "#129826",
    "kubelet has chains in the other family and none in this one: it gave this one up when it "
    "started",
    "There is no KUBE-IPTABLES-HINT, and on IPv4 no rule of kubelet's against martian packets, "
    "until kubelet is restarted.",
    "Repair what IptablesProbeFails names, if anything, and restart kubelet. This agent makes the "
    "chains in its place.");

inline constexpr Advice kIncompatible = Make(
    kTableIncompatible, kWarning, "",
    "iptables can neither list nor save this table, because it has no option for these rules",
    "iptables -S fails, and iptables-save leaves the table out. Programs that read it miss their "
    "rules: kube-proxy deletes no old chains.",
    "Move these rules to a table of their own (nft add table).");
inline constexpr Advice kOtherHook = Make(
    kTableIncompatible, kError, "",
    "iptables cannot insert a rule into this base chain, because its priority, hook or type is not "
    "iptables' own",
    "kubelet, kube-proxy and CNI plugins fail to make their jumps there (CHAIN_ADD failed). "
    "iptables 1.8.7 cannot list it, so that kubelet 1.33 and later may give up the family.",
    "Move the chain to a table of its own (nft add table), and reboot or delete it here.");
inline constexpr char kLoadedByNft[] =
    "nft loaded rules of Kubernetes from a saved ruleset (nft list ruleset), so that iptables can "
    "neither list nor save this table";
inline constexpr char kLoadedRemedy[] =
    "Remove the KUBE- chains from the file that nft loads at boot, which SavedRules names, and "
    "reboot.";

inline constexpr Advice kBlocked = Make(
    kCleanupBlocked, kWarning, "#131961",
    "other programs' rules jump to chains that kube-proxy deletes",
    "kube-proxy 1.34 and later deletes all its chains of a table at once. These jumps make that "
    "fail, so that all stay, and --cleanup ends with 1 each time.",
    "Remove these rules before the change.");
inline constexpr char kEmptiesMarkMasq[] =
    " This kernel has ip_vs: there, the cleanup empties KUBE-MARK-MASQ, and the packets of its "
    "users leave unmasqueraded at once.";
inline constexpr Advice kBit =
    Make(kMasqueradeBit, kWarning, "KEP-3866", "kube-proxy masquerades by a mark bit other than 14",
         "nftables mode has its own setting, which defaults to 14.",
         "Set nftables.masqueradeBit in kube-proxy's configuration to the same bit.");
inline constexpr Advice kLocalhost =
    Make(kLocalhostNodePorts, kError, "KEP-6032, #132955", "clients use node ports over 127.0.0.1",
         "nftables mode does not serve node ports there: these clients get no connection.",
         "Let them use the node's address or the cluster IP.");
inline constexpr Advice kLocalhostUnknown =
    Make(kLocalhostNodePorts, kInfo, "KEP-6032, #132955",
         "node ports answer on 127.0.0.1, and no counter shows whether a client uses that",
         "nftables mode does not serve them there.",
         "Set --iptables-localhost-nodeports=false first, or watch kube-proxy's metric "
         "iptables_localhost_nodeports_accepted_packets_total (1.31 and later).");
inline constexpr Advice kAddresses =
    Make(kNodePortAddresses, kInfo, "KEP-3866", "node ports answer on every address of this node",
         "nftables mode serves them on the node's primary address only.",
         "Set --nodeport-addresses where clients use other addresses.");
inline constexpr Advice kBypass =
    Make(kFirewallBypassed, kWarning, "KEP-3866",
         "kube-proxy accepts packets that the rest of the chain drops",
         "nftables mode accepts nothing for the firewall: these packets are dropped.",
         "Let the firewall accept traffic of pods, services and node ports itself.");
inline constexpr Advice kInvalid =
    Make(kConntrackWorkaround, kWarning, "KEP-3866",
         "kube-proxy drops packets in the state INVALID, which kernels before 6.1 need",
         "nftables mode does not drop them: long connections to services may be reset.",
         "Run kube-proxy with --conntrack-tcp-be-liberal, or a kernel of 6.1 or later.");
inline constexpr Advice kSaved = Make(
    kSavedRules, kError, "", "a file that is loaded at boot has rules with KUBE- chains",
    "Boot restores services as they were when the file was saved, and no program updates them.",
    "Save the firewall's own rules only.");
inline constexpr char kSavedByNft[] =
    "A listing of iptables' rules is not what nft reads. nft 1.0.6 loads native copies without "
    "comments: the copy of the rule against martian packets lets them in, and drops what DNAT "
    "sends to 127.0.0.1. iptables cannot list such tables. nft 1.1.7 refuses the whole file that "
    "it saved, and the node has no firewall.";
inline constexpr char kRefusedForChain[] =
    "The file jumps to a chain that it does not declare. Loading it at boot fails without that "
    "chain: nft then loads nothing of the file, iptables-restore neither that table nor those "
    "after it.";
inline constexpr char kRefusedForObject[] =
    "The file needs an nfacct object or an ipset that nothing makes before it is loaded. At boot "
    "iptables-restore then loads neither that table nor those after it.";
inline constexpr char kRefusedForSyntax[] =
    "nft cannot read lines of this file, which its own listing wrote: a comment before the end of "
    "a rule, xt match or xt target. At boot it loads nothing of the file.";
inline constexpr Advice kOldKernel =
    Make(kKernelTooOld, kError, "KEP-3866", "the kernel is older than 5.13",
         "kube-proxy refuses to start in nftables mode.",
         "Install a newer kernel, or keep iptables mode.");
inline constexpr Advice kNoModules = Make(kKernelLacksModules, kError, "KEP-3866",
                                          "the kernel lacks modules that nftables mode needs",
                                          "kube-proxy's rules are refused, and no service works.",
                                          "Install them, or keep iptables mode.");
inline constexpr Advice kOldNft =
    Make(kNftTooOld, kWarning, "#122743",
         "the host's nft is older than 1.0, which crashes on kube-proxy's rules",
         "Commands that read rules, such as nft list ruleset, fail on this node. kube-proxy itself "
         "works, because its image has its own nft.",
         "Upgrade the package nftables.");
inline constexpr char kBreaksFirewalls[] =
    " So do firewalls that change their own tables with this nft.";
inline constexpr Advice kNft1_0_0 =
    Make(kNftTooOld, kInfo, "README of knftables", "the host's nft is older than 1.0.1",
         "A kube-proxy up to 1.36 that runs without its image, with this nft, does not start in "
         "nftables mode.",
         kOldNft.remedy);

inline constexpr Advice kInIpvs =
    Make(kIpvsInUse, kError, "KEP-5495", "kube-proxy is in IPVS mode",
         "The mode is off by default from 1.40 on, and gone with 1.43.",
         "Move to nftables mode: audit --before=kube-proxy-nftables first.");
inline constexpr Advice kIpvsLeft =
    Make(kIpvsInUse, kWarning, kCleanupCode, "kube-ipvs0 exists, but no kube-proxy in IPVS mode",
         "The node treats packets to the service addresses on that device as its own.",
         "Reboot, or ip link delete kube-ipvs0.");
inline constexpr Advice kScheduler =
    Make(kIpvsScheduler, kWarning, "KEP-5495", "virtual services use a scheduler other than rr",
         "The other modes choose an endpoint at random.",
         "Check which services need it; sessionAffinity: ClientIP works in every mode.");
inline constexpr Advice kVirtual =
    Make(kIpvsOfOthers, kError, kCleanupCode,
         "a program other than kube-proxy has virtual services in IPVS",
         "kube-proxy --cleanup, and its start in nftables mode, delete all virtual services.",
         "Stop the program during the change, and let it recreate them afterwards.");
inline constexpr Advice kIpset =
    Make(kIpsetUser, kWarning, kCleanupCode, "other programs' rules match kube-proxy's ipsets",
         "kube-proxy cannot delete the set that a rule uses, and no longer updates it.",
         "Match with a set of your own.");

inline constexpr Advice kStay =
    Make(kLegacyRulesStay, kWarning, "", "rules are in iptables-legacy, and stay there",
         "The kernel keeps them in force next to the rules of nft; no program moves them, and "
         "iptables-nft does not show them.",
         "Find the program that adds them, let it use iptables-nft, and reboot.");
inline constexpr Advice kStayKubernetes =
    Make(kLegacyRulesStay, kInfo, "", "rules of kubelet and kube-proxy stay in iptables-legacy",
         kStay.consequence, "Reboot with the change; kubelet and kube-proxy make them in nft.");
inline constexpr Advice kTarget =
    Make(kNotInNft, kError, "", "the target CLUSTERIP does not work with iptables-nft (nft_compat)",
         "The rules cannot be moved.", "Replace them before the change.");
inline constexpr Advice kNoCompat =
    Make(kNotInNft, kError, "", "the kernel cannot hold iptables-nft's rules",
         "Programs can make chains there, but no rules.",
         "Install its modules (nft_compat, xt_*), or keep iptables-legacy.");

}  // namespace kipt::agent::advice

#endif  // KIPT_AGENT_AUDIT_CHANGE_ADVICE_H_
