// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "agent/xtables/iptables_save.h"
#include "netlink/xt_info.h"

namespace kipt::agent {
namespace {

using netlink::kAllMarks;
using netlink::SetMark;
using Words = absl::Span<const absl::string_view>;

bool Contains(Words words, absl::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Words OptionsOfMatch(Words words) {
  const auto* const end = std::find_if(words.begin(), words.end(), [](absl::string_view word) {
    return word == "-m" || word == "-j" || word == "-g";
  });
  return words.subspan(0, static_cast<size_t>(end - words.begin()));
}

// As xtables_strtoui with base 0: "16", "0x10", "020".
std::optional<uint32_t> ReadNumber(absl::string_view text) {
  // strtoull would skip spaces and take a sign.
  if (text.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(text.front()))) {
    return std::nullopt;
  }
  const std::string terminated(text);
  char* end = nullptr;
  const uint64_t value = std::strtoull(terminated.c_str(), &end, 0);
  if (end != terminated.c_str() + terminated.size() || value > kAllMarks) return std::nullopt;
  return static_cast<uint32_t>(value);
}

// `[!] --mark VALUE[/MASK]`.
netlink::Marks MarksOfMarkMatch(Words options) {
  if (!options.empty() && options[0] == "!") options.remove_prefix(1);
  const std::optional<SetMark> mark =
      options.size() > 1 && options[0] == "--mark" ? ReadMaskedValue(options[1]) : std::nullopt;
  return {.tested = mark ? mark->mask : kAllMarks};
}

// xt_mark's mark = (mark & ~mask) ^ value, in each of the spellings of libxt_MARK: what is turned
// on are bits of the value.
netlink::Marks MarksOfMarkTarget(Words words) {
  if (words.size() != 2) return {.set = kAllMarks};
  const std::optional<SetMark> mark = ReadMaskedValue(words[1]);
  if (!mark) return {.set = kAllMarks};
  if (words[0] == "--and-mark") return {.cleared = ~mark->value};
  if (words[0] == "--or-mark") return {.set = mark->value};
  if (words[0] == "--xor-mark") return {.set = mark->value, .cleared = mark->value};
  if (words[0] == "--set-mark") return {.set = mark->value, .cleared = mark->mask & ~mark->value};
  if (words[0] == "--set-xmark") return {.set = mark->value, .cleared = mark->mask ^ mark->value};
  return {.set = kAllMarks};
}

// The argument of `option`; all bits where the rule does not have it, nothing where it is no
// number.
std::optional<uint32_t> MaskOption(Words words, absl::string_view option) {
  for (size_t at = 1; at + 1 < words.size(); ++at) {
    if (words[at] == option || words[at] == "--mask") return ReadNumber(words[at + 1]);
  }
  return kAllMarks;
}

// linux/net/netfilter/xt_connmark.c: restoring is mark = (mark & ~nfmask) ^ (ctmark & ctmask),
// saving looks at mark & nfmask, and the others do not touch the packet.
netlink::Marks MarksOfConnmarkTarget(Words words) {
  if (words.empty()) return netlink::MarksOfUnknownTarget();
  if (words[0] == "--restore-mark") {
    const bool shifted =
        Contains(words, "--left-shift-mark") || Contains(words, "--right-shift-mark");
    return {.set = shifted ? kAllMarks : MaskOption(words, "--ctmask").value_or(kAllMarks)};
  }
  if (words[0] == "--save-mark") {
    return {.tested = MaskOption(words, "--nfmask").value_or(kAllMarks)};
  }
  const bool of_connection = words[0] == "--set-xmark" || words[0] == "--set-mark" ||
                             words[0] == "--and-mark" || words[0] == "--or-mark" ||
                             words[0] == "--xor-mark";
  return of_connection ? netlink::Marks{} : netlink::MarksOfUnknownTarget();
}

netlink::Marks MarksOfTproxyTarget(Words words) {
  const auto* const option = std::find(words.begin(), words.end(), "--tproxy-mark");
  if (option == words.end()) return {};
  const std::optional<SetMark> mark =
      option + 1 != words.end() ? ReadMaskedValue(option[1]) : std::nullopt;
  return {.set = mark ? mark->value : kAllMarks};
}

// `[!] --label LABEL [--set]`, where the label may be a name (connlabel.conf), which could be that
// of any.
netlink::Marks MarksOfConnlabelMatch(Words options) {
  if (!Contains(options, "--set")) return {};
  if (options[0] == "!") options.remove_prefix(1);
  std::optional<uint32_t> number;
  if (options.size() > 1 && options[0] == "--label") {
    // iptables-save quotes numbers, too.
    number = ReadNumber(absl::StripSuffix(absl::StripPrefix(options[1], "\""), "\""));
  }
  if (!number || *number > netlink::kMostConnLabel) {
    return {.labels_set = netlink::AllConnLabels()};
  }
  return {.labels_set = netlink::ConnLabelSet().set(*number)};
}

}  // namespace

std::optional<SetMark> ReadMaskedValue(absl::string_view word) {
  const size_t slash = word.find('/');
  const bool has_mask = slash != absl::string_view::npos;
  const std::optional<uint32_t> value = ReadNumber(word.substr(0, slash));
  const std::optional<uint32_t> mask = has_mask ? ReadNumber(word.substr(slash + 1)) : kAllMarks;
  if (!value || !mask) return std::nullopt;
  return SetMark{.value = *value, .mask = *mask};
}

netlink::Marks MarksOfMatch(absl::string_view name, Words words) {
  const Words options = OptionsOfMatch(words);
  if (name == "connlabel") return MarksOfConnlabelMatch(options);
  if (netlink::IsMatchWithoutMark(name)) return {};
  if (name == "mark") return MarksOfMarkMatch(options);
  if (name == "rpfilter") return {.tested = Contains(options, "--validmark") ? kAllMarks : 0};
  // It copies the socket's mark to the packet.
  if (name == "socket") return {.set = Contains(options, "--restore-skmark") ? kAllMarks : 0};
  if (name == "bpf") return {.tested = kAllMarks};
  return netlink::MarksOfUnknownMatch();
}

netlink::Marks MarksOfTarget(absl::string_view name, Words words) {
  if (netlink::IsTargetWithoutMark(name)) return {};
  if (name == "MARK") return MarksOfMarkTarget(words);
  if (name == "CONNMARK") return MarksOfConnmarkTarget(words);
  if (name == "TPROXY") return MarksOfTproxyTarget(words);
  if (name == "SET") return {.set = Contains(words, "--map-mark") ? kAllMarks : 0};
  if (name == "HMARK") return {.tested = kAllMarks, .set = kAllMarks};
  return netlink::MarksOfUnknownTarget();
}

}  // namespace kipt::agent
