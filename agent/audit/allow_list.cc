// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/allow_list.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/audit/finding.h"
#include "agent/text/printable.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

absl::Status LineError(size_t line, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", problem));
}

// The next word of `text`, which it is taken off.
absl::string_view TakeWord(absl::string_view& text) {
  text = absl::StripLeadingAsciiWhitespace(text);
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const absl::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

bool IsChain(absl::string_view word) {
  if (word == "*") return true;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(word, absl::MaxSplits('/', 1));
  return netlink::FindTable(parts.first) && !parts.second.empty() &&
         !absl::StrContains(parts.second, "/");
}

absl::StatusOr<AllowEntry> ParseEntry(size_t line, absl::string_view text) {
  AllowEntry entry;
  entry.line = line;
  if (const size_t hash = text.rfind(" # "); hash != absl::string_view::npos) {
    entry.reason = std::string(absl::StripAsciiWhitespace(text.substr(hash + 3)));
    text = text.substr(0, hash);
  }
  entry.kind = std::string(TakeWord(text));
  if (entry.kind != "*" && !AuditKindFromName(entry.kind)) {
    return LineError(line, absl::StrCat(QuoteForMessage(entry.kind), " is not a kind of finding"));
  }
  absl::string_view word = TakeWord(text);
  if (word == "nft" || word == "legacy") {
    entry.iptables_mode = std::string(word);
    word = TakeWord(text);
  }
  if (!IsChain(word)) {
    return LineError(line, absl::StrCat("expected TABLE/CHAIN, or * for any, instead of ",
                                        QuoteForMessage(word)));
  }
  entry.chain = std::string(word);
  entry.text = std::string(absl::StripAsciiWhitespace(text));
  if (entry.kind == "*" && entry.chain == "*" && entry.text.empty()) {
    return LineError(line, "this would allow everything");
  }
  return entry;
}

}  // namespace

std::string ToString(const AllowEntry& entry) {
  return absl::StrCat("line ", entry.line, ": ", entry.kind, " ", entry.iptables_mode,
                      entry.iptables_mode.empty() ? "" : " ", entry.chain,
                      entry.text.empty() ? "" : " ", entry.text);
}

bool AllowEntry::Covers(absl::string_view of_kind, absl::string_view of_mode,
                        absl::string_view of_chain, absl::string_view of_text) const {
  return (kind == "*" || kind == of_kind) && (iptables_mode.empty() || iptables_mode == of_mode) &&
         (chain == "*" || chain == of_chain) && absl::StrContains(of_text, text);
}

absl::StatusOr<AllowList> ParseAllowList(absl::string_view text) {
  AllowList list;
  size_t line = 0;
  for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
    ++line;
    const absl::string_view content = absl::StripAsciiWhitespace(whole);
    if (content.empty() || content.front() == '#') continue;
    absl::StatusOr<AllowEntry> entry = ParseEntry(line, content);
    if (!entry.ok()) return entry.status();
    for (const AllowEntry& other : list) {
      if (other.kind == entry->kind && other.iptables_mode == entry->iptables_mode &&
          other.chain == entry->chain && other.text == entry->text) {
        return LineError(line, absl::StrCat("repeats line ", other.line));
      }
    }
    list.push_back(*std::move(entry));
  }
  return list;
}

}  // namespace kipt::agent
