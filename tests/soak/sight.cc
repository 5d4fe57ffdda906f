// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/sight.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace kipt::soak {
namespace {

using testing::IpFamily;
using Wanted = std::function<bool(const SeenRule&)>;

class View {
 public:
  View(const SeenChains& chains, IpFamily family) : chains_(chains), family_(family) {}

  bool Masquerades() const {
    const std::optional<uint32_t> bit = BitOf("KUBE-MARK-MASQ");
    return bit && Jumps("nat", "POSTROUTING", "KUBE-POSTROUTING") &&
           Has("nat", "KUBE-POSTROUTING",
               [](const SeenRule& rule) {
                 return rule.target == "RETURN" && rule.mark && rule.mark->negated;
               }) &&
           IsMasqueraded(*bit);
  }
  bool DropsMarked() const {
    const std::optional<uint32_t> bit = BitOf("KUBE-MARK-DROP");
    return bit && Jumps("filter", "INPUT", "KUBE-FIREWALL") &&
           Has("filter", "KUBE-FIREWALL", [&bit](const SeenRule& rule) {
             return rule.target == "DROP" && rule.mark == MarkMatch{*bit, *bit, false};
           });
  }
  bool DropsMartians() const {
    return Jumps("filter", "INPUT", "KUBE-FIREWALL") &&
           Has("filter", "KUBE-FIREWALL", [](const SeenRule& rule) {
             return rule.target == "DROP" && rule.destination && rule.ct_state;
           });
  }
  bool Leads(const char* user, const char* to) const {
    return Jumps("nat", "PREROUTING", user) && Jumps("nat", user, to);
  }

 private:
  bool Has(const char* table, const char* chain, const Wanted& wanted) const {
    const auto found = chains_.find({family_, table, chain});
    return found != chains_.end() &&
           std::any_of(found->second.begin(), found->second.end(), wanted);
  }
  bool Jumps(const char* table, const char* from, const char* to) const {
    return Has(table, from, [to](const SeenRule& rule) { return rule.target == to; });
  }
  // The bit that this chain turns on.
  std::optional<uint32_t> BitOf(const char* chain) const {
    std::optional<uint32_t> bit;
    Has("nat", chain, [&bit](const SeenRule& rule) {
      if (rule.sets) bit = rule.sets->value & rule.sets->mask;
      return bit.has_value();
    });
    return bit;
  }
  // What becomes of a packet with this mark in KUBE-POSTROUTING, where the order of rules matters:
  // a kubelet that finds one of three rules appends the others after it.
  bool IsMasqueraded(uint32_t mark) const {
    const auto found = chains_.find({family_, "nat", "KUBE-POSTROUTING"});
    if (found == chains_.end()) return false;
    for (const SeenRule& rule : found->second) {
      if (rule.mark && !Matches(*rule.mark, mark)) continue;
      if (rule.sets) mark = (mark & ~rule.sets->mask) ^ rule.sets->value;
      if (rule.target == "RETURN") return false;
      if (rule.target == "MASQUERADE") return true;
    }
    return false;
  }
  static bool Matches(const MarkMatch& match, uint32_t mark) {
    return ((mark & match.mask) == match.value) != match.negated;
  }

  const SeenChains& chains_;
  const IpFamily family_;
};

// The words of a line. What is quoted, comments, is left out: a comment may contain anything.
std::vector<absl::string_view> WordsOf(absl::string_view line) {
  std::vector<absl::string_view> words;
  bool quoted = false;
  for (const absl::string_view part : absl::StrSplit(line, '"')) {
    if (!quoted) {
      for (const absl::string_view word : absl::StrSplit(part, ' ', absl::SkipEmpty())) {
        words.push_back(word);
      }
    }
    quoted = !quoted;
  }
  return words;
}

// "0x4000/0x8000": value and mask.
std::pair<uint32_t, uint32_t> ValueAndMask(absl::string_view word) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(word, '/');
  uint32_t value = 0;
  uint32_t mask = ~uint32_t{0};
  if (!absl::SimpleHexAtoi(parts.first, &value)) return {0, 0};
  if (!parts.second.empty() && !absl::SimpleHexAtoi(parts.second, &mask)) return {0, 0};
  return {value, mask};
}

SeenRule RuleOf(const std::vector<absl::string_view>& words) {
  SeenRule rule;
  for (size_t i = 2; i + 1 < words.size(); ++i) {
    const absl::string_view next = words[i + 1];
    if (words[i] == "-j" || words[i] == "-g") rule.target = std::string(next);
    if (words[i] == "-d") rule.destination = true;
    if (words[i] == "--ctstate") rule.ct_state = true;
    if (words[i] == "--mark") {
      const auto [value, mask] = ValueAndMask(next);
      rule.mark = MarkMatch{value, mask, words[i - 1] == "!"};
    }
    if (words[i] == "--set-xmark") {
      const auto [value, mask] = ValueAndMask(next);
      rule.sets = MarkChange{value, mask};
    }
  }
  return rule;
}

constexpr std::pair<const char*, const char*> kWatched[] = {
    {"filter", "INPUT"},       {"filter", "KUBE-FIREWALL"}, {"nat", "PREROUTING"},
    {"nat", "POSTROUTING"},    {"nat", "KUBE-POSTROUTING"}, {"nat", "KUBE-MARK-MASQ"},
    {"nat", "KUBE-MARK-DROP"}, {"nat", "USER-MASQ"},        {"nat", "USER-DROPS"},
};

}  // namespace

const std::vector<ChainKey>& WatchedChains() {
  static const std::vector<ChainKey> all = [] {
    std::vector<ChainKey> chains;
    for (const IpFamily family : testing::kBothFamilies) {
      for (const auto& [table, chain] : kWatched) chains.emplace_back(family, table, chain);
    }
    return chains;
  }();
  return all;
}

Sight SightOf(const SeenChains& chains) {
  const View v4(chains, IpFamily::kIpv4);
  const View v6(chains, IpFamily::kIpv6);
  Sight sight;
  sight.ours = {v4.Masquerades(), v6.Masquerades(), v4.DropsMarked(), v6.DropsMarked(),
                v4.DropsMartians()};
  sight.theirs = {v4.Leads("USER-MASQ", "KUBE-MARK-MASQ"), v6.Leads("USER-MASQ", "KUBE-MARK-MASQ"),
                  v4.Leads("USER-DROPS", "KUBE-MARK-DROP"),
                  v6.Leads("USER-DROPS", "KUBE-MARK-DROP"), true};
  return sight;
}

void AddSavedRules(const std::string& saved, IpFamily family, SeenChains& chains) {
  std::string table;
  for (absl::string_view line : absl::StrSplit(saved, '\n')) {
    if (absl::ConsumePrefix(&line, "*")) table = std::string(line);
    if (!absl::StartsWith(line, "-A ")) continue;
    const std::string chain(line.substr(3, line.find(' ', 3) - 3));
    const bool watched =
        std::any_of(std::begin(kWatched), std::end(kWatched),
                    [&](const auto& one) { return one.first == table && one.second == chain; });
    if (watched) chains[{family, table, chain}].push_back(RuleOf(WordsOf(line)));
  }
}

}  // namespace kipt::soak
