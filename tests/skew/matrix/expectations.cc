// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/skew/matrix/judge.h"

namespace kipt::skew {
namespace {

// A row holds for questions about one of `about` where `applies`; the first that holds decides.
// Where none does, it is as on a sound node.
using Facts = const FamilyFacts&;
using Asked = const Question&;
struct Row {
  std::vector<About> about;
  bool (*applies)(Facts facts, Asked question);
  Outcome expected;
  const char* because;
};

bool AsksNode(const Question& question) {
  return question.probe.address == AddressOf(Place::kNode, question.probe.family) ||
         question.probe.address == BoundVip(question.probe.family) ||
         absl::StartsWith(question.probe.address, "127.");
}

bool AsksService(About about) {
  switch (about) {
    case About::kService:
    case About::kServiceFromNode:
    case About::kNoEndpoints:
    case About::kRefusedBoundVip:
    case About::kRefusedRoutedVip:
    case About::kNoLocalEndpoint:
    case About::kNoInternalEndpoint:
      return true;
    default:
      return false;
  }
}

bool NoNat(const FamilyFacts& facts, const Question& /*question*/) {
  return !facts.proxy_nat.has_value() || !facts.nat_has_services;
}

bool ProxyMarks(const FamilyFacts& facts) {
  return facts.proxy_nat.has_value() && Does(*facts.proxy_nat, Trait::kDropsByMarkDrop);
}

// By KUBE-MARK-DROP.
bool IsMarked(const FamilyFacts& facts, const Question& question) {
  return question.about == About::kUserDrop || ProxyMarks(facts);
}

bool OldFilterNewNat(const FamilyFacts& facts, const Question& /*question*/) {
  const auto drops_itself = [](const std::optional<Version>& proxy) {
    return proxy.has_value() && Does(*proxy, Trait::kProxyFirewall);
  };
  return drops_itself(facts.proxy_nat) && !drops_itself(facts.proxy_filter);
}

// With no rule in place a listener on the node answers, or the next hop.
constexpr char kNoProxyRules[] =
    "kube-proxy's nat rules are missing: they were flushed, or refused because KUBE-MARK-DROP is "
    "missing (kubernetes #80462), and the next sync is still to come";
constexpr char kRemoved[] =
    "kube-proxy --cleanup has removed kube-proxy's rules, and kube-proxy does not run";
constexpr char kNoPostrouting[] =
    "kube-proxy --cleanup has removed KUBE-POSTROUTING, which kubelet shares with it and does not "
    "restore: nothing masquerades marked packets";
constexpr char kRefusedNat[] =
    "the filter rules are those of the older kube-proxy, the nat rules those of the newer one; the "
    "older nat rules were refused because KUBE-MARK-DROP is missing (kubernetes #80462)";
constexpr char kEmptyMarkDrop[] =
    "kube-proxy up to 1.24 marks by KUBE-MARK-DROP, which only kubelet fills; with the gate on it "
    "is empty, and packets that should be dropped pass (KEP-3178)";
constexpr char kNoDropRule[] =
    "the rule that drops marked packets is missing from KUBE-FIREWALL; kube-proxy 1.27 and later "
    "flushes that chain at each sync (IPv4), and the owner has not repaired it";
constexpr char kNoJumps[] =
    "nothing jumps to KUBE-FIREWALL: kubelet 1.25 to 1.27 makes the jumps for IPv4 alone";
constexpr char kForwardNotHooked[] =
    "only INPUT and OUTPUT jump to KUBE-FIREWALL: a marked packet that is forwarded is not "
    "dropped; kube-proxy 1.25 and later drops it (FORWARD jumps to KUBE-PROXY-FIREWALL)";
Row Known(std::vector<About> about, bool (*applies)(Facts facts, Asked question), Outcome expected,
          const char* because) {
  return {std::move(about), applies, expected, because};
}

const Row kRows[] = {
    // Before kube-proxy's nat rules, and without them.
    Known(
        {About::kService, About::kRefusedBoundVip, About::kNoLocalEndpoint,
         About::kRefusedRoutedVip, About::kNoInternalEndpoint},
        [](Facts facts, Asked question) { return NoNat(facts, question) && AsksNode(question); },
        Outcome::kReachedHost, kNoProxyRules),
    Known({About::kService, About::kServiceFromNode, About::kRefusedBoundVip,
           About::kNoLocalEndpoint, About::kRefusedRoutedVip, About::kNoInternalEndpoint},
          NoNat, Outcome::kForwarded, kNoProxyRules),
    Known(
        {About::kNoEndpoints},
        [](Facts facts, Asked question) {
          return !facts.proxy_filter.has_value() && AsksNode(question);
        },
        Outcome::kReachedHost, kNoProxyRules),
    Known(
        {About::kNoEndpoints}, [](Facts facts, Asked) { return !facts.proxy_filter.has_value(); },
        Outcome::kForwarded, kNoProxyRules),

    // kube-proxy 1.27 was rolled back to one whose nat rules are refused.
    Known({About::kNoLocalEndpoint}, OldFilterNewNat, Outcome::kReachedHost, kRefusedNat),
    Known({About::kNoInternalEndpoint}, OldFilterNewNat, Outcome::kForwarded, kRefusedNat),

    // kube-proxy marks these packets, and kubelet drops them; leftovers of a newer kube-proxy drop
    // them too.
    Known(
        {About::kRefusedBoundVip, About::kRefusedRoutedVip},
        [](Facts facts, Asked) { return facts.proxy_firewall; }, Outcome::kDropped, ""),
    Known(
        {About::kNoInternalEndpoint},
        [](Facts facts, Asked) { return !Does(*facts.proxy_nat, Trait::kInternalPolicy); },
        Outcome::kServed, "kube-proxy honours internalTrafficPolicy from 1.22 on"),
    Known(
        {About::kNoInternalEndpoint},
        [](Facts facts, Asked) { return !Does(*facts.proxy_nat, Trait::kExtChains); },
        Outcome::kRejected,
        "kube-proxy 1.22 and 1.23 treat a service without a local endpoint like one without any"),
    Known(
        {About::kRefusedRoutedVip, About::kNoInternalEndpoint},
        [](Facts facts, Asked) { return ProxyMarks(facts); }, Outcome::kForwarded,
        kForwardNotHooked),
    Known(
        {About::kUserDrop}, [](Facts facts, Asked) { return !facts.user_drop; },
        Outcome::kReachedHost,
        "KUBE-MARK-DROP does not exist: iptables refuses the third party's rule"),
    Known(
        {About::kRefusedBoundVip, About::kNoLocalEndpoint, About::kUserDrop},
        [](Facts facts, Asked question) {
          return IsMarked(facts, question) && !facts.mark_drop_sets;
        },
        Outcome::kReachedHost, kEmptyMarkDrop),
    Known(
        {About::kRefusedBoundVip, About::kNoLocalEndpoint, About::kUserDrop},
        [](Facts facts, Asked question) { return IsMarked(facts, question) && !facts.drop_rule; },
        Outcome::kReachedHost, kNoDropRule),
    Known(
        {About::kRefusedBoundVip, About::kNoLocalEndpoint, About::kUserDrop},
        [](Facts facts, Asked question) {
          return IsMarked(facts, question) && !facts.firewall_jumps;
        },
        Outcome::kReachedHost, kNoJumps),

    // Martians.
    Known(
        {About::kMartian},
        [](Facts facts, Asked) {
          return facts.route_localnet && !(facts.martian_rule && facts.firewall_jumps);
        },
        Outcome::kReachedHost,
        "route_localnet is 1 and no rule drops martian packets (CVE-2020-8558): kubelet's rule is "
        "missing, and kube-proxy has one from 1.27 on"),
    Known({About::kLocalhostNodePort}, NoNat, Outcome::kReachedHost, kNoProxyRules),

    Known(
        {About::kIpvsHairpin}, [](Facts facts, Asked) { return !facts.ipvs_hairpin; },
        Outcome::kServed,
        "kube-proxy's rule for hairpin packets was flushed, and its next sync is still to come"),

    // Third parties.
    Known(
        {About::kUserMasq}, [](Facts facts, Asked) { return facts.user_masq && !facts.mark_masq; },
        Outcome::kServed, kNoPostrouting),
    Known(
        {About::kUserMasq}, [](Facts facts, Asked) { return !facts.user_masq || !facts.mark_masq; },
        Outcome::kServed, "KUBE-MARK-MASQ does not exist: iptables refuses the third party's rule"),
};

}  // namespace

Expectation Expect(const FamilyFacts& facts, const Question& question) {
  Expectation expectation = {.sound = question.sound, .expected = question.sound};
  // The kernel itself refuses packets to 127.0.0.0/8 from elsewhere, before any rule.
  if (question.about == About::kMartian && !facts.route_localnet) {
    return {.sound = Outcome::kLost, .expected = Outcome::kLost};
  }
  if (facts.NftablesServes()) {
    // This mode serves node ports at the node's own address, and not at localhost (KEP-3866).
    if (question.about == About::kLocalhostNodePort) {
      return {.sound = Outcome::kReachedHost, .expected = Outcome::kReachedHost};
    }
    if (AsksService(question.about)) return expectation;
  }
  for (const Row& row : kRows) {
    bool holds = false;
    for (const About about : row.about) holds |= about == question.about;
    if (!holds || !row.applies(facts, question)) continue;
    // A fact may make no difference to this packet.
    if (row.expected != question.sound) {
      expectation.expected = row.expected;
      const bool removed = facts.proxy_removed && row.because == kNoProxyRules;
      expectation.because = removed ? kRemoved : row.because;
    }
    break;
  }
  return expectation;
}

Expectation ExpectStream(const FamilyFacts& facts, const StreamQuestion& question) {
  Question asked;
  asked.probe = question.probe;
  asked.about = question.about;
  asked.sound = question.about == About::kService ? Outcome::kServedMasqueraded : Outcome::kDropped;
  return Expect(facts, asked);
}

bool IsStopped(Outcome outcome) {
  return outcome == Outcome::kDropped || outcome == Outcome::kRejected || outcome == Outcome::kLost;
}

int Badness(Outcome sound, Outcome actual) {
  if (sound == actual) return 0;
  if (IsStopped(sound)) return IsStopped(actual) ? 1 : 3;
  return IsStopped(actual) ? 2 : 1;
}

}  // namespace kipt::skew
