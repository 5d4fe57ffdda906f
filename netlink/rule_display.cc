// SPDX-License-Identifier: Apache-2.0
#include "netlink/rule_display.h"

#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "netlink/nf_tables.h"
#include "netlink/statement.h"
#include "netlink/xt_display.h"
#include "netlink/xt_info.h"

namespace kipt::netlink {
namespace {

// iptables-save prints addresses, interfaces and the protocol first, whatever the order in the
// rule.
enum Place : uint8_t { kSource, kDestination, kInput, kOutput, kProtocol, kMatches, kTarget };
constexpr size_t kPlaces = kTarget + 1;

std::string ProtocolName(uint8_t protocol) {
  static constexpr std::pair<uint8_t, const char*> kNames[] = {
      {IPPROTO_TCP, "tcp"},   {IPPROTO_UDP, "udp"},   {IPPROTO_UDPLITE, "udplite"},
      {IPPROTO_SCTP, "sctp"}, {IPPROTO_ICMP, "icmp"}, {IPPROTO_ICMPV6, "ipv6-icmp"},
      {IPPROTO_ESP, "esp"},   {IPPROTO_AH, "ah"}};
  for (const auto& [number, name] : kNames) {
    if (number == protocol) return name;
  }
  return absl::StrCat(static_cast<unsigned>(protocol));
}

class Describer {
 public:
  explicit Describer(std::optional<Family> family) : family_(family.value_or(Family::kIPv4)) {
    rule_.unconditional = rule_.perhaps_unconditional = true;
  }

  void operator()(const FamilyStatement& only) {
    family_ = only.family;
    Condition(kMatches, /*negated=*/false, "[nft meta]", "");
  }
  void operator()(const AddressStatement& address) {
    const bool all = address.match.prefix.length == 0 && !address.match.negated;
    if (!all) {
      Condition(address.is_source ? kSource : kDestination, address.match.negated,
                address.is_source ? "-s " : "-d ", ToString(family_, address.match.prefix));
    }
  }
  void operator()(const InterfaceStatement& interface) {
    Condition(interface.is_input ? kInput : kOutput, interface.negated,
              interface.is_input ? "-i " : "-o ", interface.name);
    if (interface.is_input && !rule_.in_interface) {
      rule_.in_interface = {interface.name, interface.negated};
    }
  }
  void operator()(const ProtocolStatement& protocol) {
    protocol_ = ProtocolName(protocol.protocol);
    Condition(kProtocol, protocol.negated, "-p ", protocol_);
  }
  void operator()(const PortStatement& port) {
    AddToPorts(port.is_source ? 0 : 1, OptionWords(port.is_source ? "--sport" : "--dport",
                                                   PortsText(port.first, port.last), port.negated));
  }
  void operator()(const TcpFlagsStatement& tcp) {
    const std::optional<std::string> flags = TcpFlagsText(tcp.mask, tcp.flags);
    if (protocol_ != "tcp" || !flags) {
      Condition(kMatches, /*negated=*/false, "[nft payload]", "");
    } else {
      AddToPorts(2, OptionWords("--tcp-flags", *flags, tcp.negated));
    }
  }
  void operator()(const MarkMatch& mark) { AddMatch({.mark = mark, .target = NoTarget{}}); }
  void operator()(const XtCtState& state) {
    std::string text = ToString(family_, Rule{.ct_state = state.match, .target = NoTarget{}});
    if (state.state_alias) {
      text = absl::StrCat("-m state", absl::StripPrefix(text, "-m conntrack"));
      text.replace(text.find("--ctstate"), 9, "--state");
    }
    Condition(kMatches, /*negated=*/false, text, "");
  }
  void operator()(const ConnStateStatement& state) {
    AddMatch({.ct_state = state.match, .target = NoTarget{}});
  }
  void operator()(const ConnLabelMatch& label) {
    AddMatch({.conn_label = label, .target = NoTarget{}});
  }
  void operator()(const CommentStatement& comment) {
    Print(kMatches, absl::StrCat("-m comment --comment ", QuoteForSave(comment.text)));
  }
  void operator()(const RuleCounters&) {}
  void operator()(const VerdictStatement& verdict) {
    decides_ = true;
    const bool jumps = verdict.code == NFT_JUMP || verdict.code == NFT_GOTO;
    if (jumps && !rule_.jump) rule_.jump = verdict.chain;
    // The codes from 0 on are netfilter's: NF_ACCEPT, NF_DROP, and NF_QUEUE with a number.
    const bool ends = verdict.code >= 0 || verdict.code == NFT_RETURN || verdict.code == NFT_GOTO;
    rule_.terminal = rule_.terminal || ends;
    rule_.drops = rule_.drops || (verdict.code == NF_DROP && !ended_);
    ended_ = ended_ || ends || jumps;
    rule_.returns = rule_.returns || verdict.code == NFT_RETURN;
    if (!LeavesMark(verdict)) rule_.marks |= MarksOfUnknownTarget();
    NameTarget(VerdictName(verdict.code));
    Print(kTarget, VerdictText(verdict));
  }
  void operator()(const SetMark& mark) {
    NameTarget("MARK");
    AddTarget(Rule{.target = mark}, /*terminal=*/false);
  }
  void operator()(const Masquerade& masquerade) {
    NameTarget("MASQUERADE");
    AddTarget(Rule{.target = masquerade}, /*terminal=*/true);
  }
  void operator()(const OtherExpression& other) {
    if (other.selects) {
      Choose();
    } else if (other.condition) {
      rule_.unconditional = false;
    }
    // The expression of nft, and the target of xtables.
    const bool rejects = other.terminal && (other.name == "reject" || other.name == "REJECT");
    rule_.drops = rule_.drops || (rejects && !ended_);
    rule_.queues = rule_.queues || (other.queues && !ended_);
    ended_ = ended_ || other.terminal;
    decides_ = decides_ || other.decides;
    rule_.terminal = rule_.terminal || other.terminal;
    rule_.perhaps_terminal = rule_.perhaps_terminal || other.perhaps_terminal;
    rule_.nfacct = rule_.nfacct || other.nfacct;
    if (rule_.set_directions.empty()) rule_.set_directions = other.set_directions;
    rule_.marks |= other.marks;
    NameTarget(other.target);
    if (!other.text.empty()) {
      Print(other.is_target ? kTarget : kMatches, other.text);
    } else if (other.name == "reject") {
      // How it rejects is left out: the packet is lost anyway.
      NameTarget("REJECT");
      Print(kTarget, "-j REJECT");
    } else {
      Print(other.is_target ? kTarget : kMatches, absl::StrCat("[nft ", other.name, "]"));
    }
  }

  OpaqueRule Finish() && {
    ClosePorts();
    std::vector<std::string> all;
    for (std::vector<std::string>& place : words_)
      std::move(place.begin(), place.end(), std::back_inserter(all));
    rule_.text = absl::StrJoin(all, " ");
    rule_.decides = decides_;
    return std::move(rule_);
  }

 private:
  // Options of `-m tcp` and the like. iptables-save prints those of one match together, in its own
  // order, at the place of the first.
  void AddToPorts(size_t place, std::string option) {
    Choose();
    if (!ports_place_ || ports_of_ != protocol_ || !ports_[place].empty()) {
      ClosePorts();
      ports_place_ = words_[kMatches].size();
      ports_of_ = protocol_;
      Print(kMatches, "");
    }
    ports_[place] = std::move(option);
  }
  void ClosePorts() {
    if (!ports_place_) return;
    const std::string match = ports_of_.empty() ? "" : absl::StrCat("-m ", ports_of_);
    const std::string text = absl::StrCat(match, ports_[0], ports_[1], ports_[2]);
    words_[kMatches][*ports_place_] = std::string(absl::StripPrefix(text, " "));
    ports_ = {};
  }

  // Some packets do not match. What follows a verdict cannot choose any more.
  void Choose() {
    rule_.unconditional = false;
    if (!ended_) rule_.perhaps_unconditional = false;
  }

  void NameTarget(absl::string_view name) {
    if (rule_.target.empty()) rule_.target = std::string(name);
  }

  void Print(Place place, std::string text) { words_[place].push_back(std::move(text)); }

  void Condition(Place place, bool negated, absl::string_view option, absl::string_view value) {
    Choose();
    Print(place, absl::StrCat(negated ? "! " : "", option, value));
  }

  // In the words of a Rule that has this one match, and no target.
  void AddMatch(const Rule& rule) {
    rule_.marks |= MarksOf(rule);
    if (!IsUnconditional(rule)) Choose();
    Print(kMatches, ToString(family_, rule));
  }

  void AddTarget(const Rule& rule, bool terminal) {
    decides_ = true;
    rule_.marks |= MarksOf(rule);
    rule_.terminal = rule_.terminal || terminal;
    Print(kTarget, ToString(family_, rule));
  }

  static bool LeavesMark(const VerdictStatement& verdict) {
    // A program that packets are queued to may set both with its verdict (NFQA_CT).
    constexpr int32_t kVerdicts[] = {NF_ACCEPT, NF_DROP,  NFT_CONTINUE, NFT_BREAK,
                                     NFT_JUMP,  NFT_GOTO, NFT_RETURN};
    return absl::c_linear_search(kVerdicts, verdict.code);
  }

  // Empty for one that iptables has no name for.
  static absl::string_view VerdictName(int32_t code) {
    if (code == NF_ACCEPT) return "ACCEPT";
    if (code == NF_DROP) return "DROP";
    return code == NFT_RETURN ? "RETURN" : "";
  }

  static std::string VerdictText(const VerdictStatement& verdict) {
    if (verdict.code == NFT_JUMP) return absl::StrCat("-j ", verdict.chain);
    if (verdict.code == NFT_GOTO) return absl::StrCat("-g ", verdict.chain);
    const absl::string_view name = VerdictName(verdict.code);
    return name.empty() ? absl::StrCat("[nft verdict ", verdict.code, "]")
                        : absl::StrCat("-j ", name);
  }

  Family family_;
  OpaqueRule rule_;
  bool decides_ = false;
  bool ended_ = false;  // by a verdict
  std::string protocol_;
  // The match that AddToPorts is filling: its place, its protocol and its options.
  std::optional<size_t> ports_place_;
  std::string ports_of_;
  std::array<std::string, 3> ports_;
  std::vector<std::string> words_[kPlaces];
};

}  // namespace

OpaqueRule DescribeOpaqueRule(std::optional<Family> family,
                              absl::Span<const Statement> statements) {
  Describer describer(family);
  for (const Statement& statement : statements) std::visit(describer, statement);
  return std::move(describer).Finish();
}

}  // namespace kipt::netlink
