// SPDX-License-Identifier: Apache-2.0
//
// Files of rules that are loaded at boot.
#include <fnmatch.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/audit/change_facts.h"
#include "agent/audit/finding.h"
#include "agent/process/files.h"

namespace kipt::agent {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;

// What netfilter-persistent, Red Hat's iptables-services, OpenRC, Arch, nftables.service, ufw,
// firewalld and ifupdown load at boot. A `*` in the last name matches any text.
constexpr absl::string_view kFiles[] = {
    "/etc/iptables/rules.v4",
    "/etc/iptables/rules.v6",
    "/etc/iptables.rules",
    "/etc/iptables.up.rules",
    "/etc/iptables/rules-save",
    "/etc/iptables/rules6-save",
    "/etc/iptables/iptables.rules",
    "/etc/iptables/ip6tables.rules",
    "/etc/sysconfig/iptables",
    "/etc/sysconfig/ip6tables",
    "/var/lib/iptables/rules-save",
    "/var/lib/ip6tables/rules-save",
    "/etc/ufw/before.rules",
    "/etc/ufw/after.rules",
    "/etc/ufw/before6.rules",
    "/etc/ufw/after6.rules",
    "/etc/ufw/user.rules",
    "/etc/ufw/user6.rules",
    "/etc/firewalld/direct.xml",
    // Those that include others first.
    "/etc/nftables.conf",
    "/etc/nftables.nft",
    "/etc/sysconfig/nftables.conf",
    "/var/lib/nftables/rules-save",
    "/etc/nftables/*.nft",
    "/etc/nftables.d/*.nft",
};

// What restores ipsets at boot, before rules.
constexpr const char* kIpsetFiles[] = {"/etc/iptables/ipsets", "/etc/sysconfig/ipset",
                                       "/etc/ipset.conf", "/var/lib/ipset/rules-save"};

// The word after `option`; empty where `line` does not have that.
absl::string_view WordAfter(absl::string_view line, absl::string_view option) {
  const size_t at = line.find(option);
  if (at == absl::string_view::npos) return "";
  line = absl::StripLeadingAsciiWhitespace(line.substr(at + option.size()));
  return line.substr(0, line.find_first_of(" \t<;}\""));
}

// The chain after -j or -g; empty where that is none of Kubernetes'.
absl::string_view JumpIn(absl::string_view line) {
  for (const absl::string_view option : {"-j ", "-g ", "jump ", "goto "}) {
    const absl::string_view chain = WordAfter(line, option);
    if (absl::StartsWith(chain, "KUBE-")) return chain;
  }
  return "";
}

// `line` without its quoted texts and comments, because a chain that they name is not used there.
std::string WithoutTexts(absl::string_view line) {
  std::string text;
  bool quoted = false;
  for (size_t at = 0; at < line.size(); ++at) {
    const char next = line[at];
    if (next == '"') quoted = !quoted;
    if (!quoted || next == '"') text += next;
    if (quoted && next == '\\') ++at;
  }
  // iptables-save does not quote a single word.
  const absl::string_view word = WordAfter(text, "--comment ");
  if (!word.empty()) text.erase(static_cast<size_t>(word.data() - text.data()), word.size());
  return text;
}

// nft ends a rule with its comment. Of a rule of iptables, newer ones show the comment in the place
// of the match, and `xt match` for what they cannot translate: they read neither.
bool IsUnreadableListing(absl::string_view line) {
  // The last is 0.9.8's word for fully-random.
  for (const absl::string_view unread : {"xt match ", "xt target ", " random-fully"}) {
    if (absl::StrContains(line, unread)) return true;
  }
  const size_t comment = line.find("comment \"");
  if (comment == absl::string_view::npos) return false;
  const size_t end = line.find('"', comment + 9);
  if (end == absl::string_view::npos) return false;
  const absl::string_view rest = absl::StripAsciiWhitespace(line.substr(end + 1));
  return !rest.empty() && !absl::StrContains(";,{}#", rest.substr(0, 1));
}

// What is loaded at once: a file, and for nft those that it includes.
struct Unit {
  bool native = false;  // in nft's language
  std::vector<SavedRules> files = {};
  std::set<std::string> declared = {};
  std::set<std::string> used = {};
  BootRefusal refusal = BootRefusal::kNone;
};

class BootRulesReader {
 public:
  BootRulesReader(const NodeFiles& node, NodeView& view) : node_(node), view_(view) {}

  void Read() {
    for (const char* const path : kIpsetFiles) {
      const absl::StatusOr<std::string> text = node_.Read(path, kMostBytes);
      if (!text.ok() && !absl::IsNotFound(text.status())) NoteProblem(text.status());
      for (const absl::string_view line : absl::StrSplit(text.value_or(""), '\n')) {
        if (absl::StartsWith(line, "create ")) ipsets_.emplace(WordAfter(line, "create "));
      }
    }
    if (const auto hidden = node_.Hidden(kFiles); !hidden.empty()) {
      view_.hidden.push_back(absl::StrCat("saved rules: ", absl::StrJoin(hidden, ", ")));
    }
    for (const absl::string_view pattern : kFiles) {
      for (const std::string& path : Matching(std::string(pattern))) {
        Unit unit{.native = absl::StrContains(path, "nft")};
        ReadFileOf(path, /*required=*/false, unit);
        Finish(std::move(unit));
      }
    }
  }

 private:
  std::vector<std::string> Matching(const std::string& pattern) {
    const size_t slash = pattern.rfind('/');
    const std::string name = pattern.substr(slash + 1);
    if (name.find_first_of("*?[") == std::string::npos) return {pattern};
    const std::string directory = pattern.substr(0, slash + 1);
    const auto names = node_.List(directory, [&](absl::string_view one) {
      return fnmatch(name.c_str(), std::string(one).c_str(), FNM_PERIOD) == 0;
    });
    std::vector<std::string> paths;
    if (names.ok()) {
      for (const std::string& one : *names) paths.push_back(directory + one);
    } else if (!absl::IsNotFound(names.status())) {
      NoteProblem(names.status());
    }
    return paths;
  }

  void ReadFileOf(const std::string& path, bool required, Unit& unit) {
    if (!seen_.insert(path).second) return;
    const absl::StatusOr<std::string> text = node_.Read(path, kMostBytes);
    if (text.ok()) return ReadText(path, *text, unit);
    if (required || !absl::IsNotFound(text.status())) NoteProblem(text.status());
  }

  void NoteProblem(const absl::Status& status) { AddProblem(view_, "saved rules", status); }

  void ReadText(const std::string& path, absl::string_view text, Unit& unit) {
    SavedRules saved = {.file = node_.Shown(path), .native = unit.native};
    // Quotes in XML hold names of chains.
    const bool quotes_names = absl::EndsWith(path, ".xml");
    size_t number = 0;
    for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
      ++number;
      const absl::string_view line = absl::StripAsciiWhitespace(whole);
      if (absl::StartsWith(line, "#") || absl::StartsWith(line, "<!--")) continue;
      if (saved.native && absl::StartsWith(line, "include ")) Include(line, unit);
      if (saved.native && IsUnreadableListing(line)) unit.refusal = BootRefusal::kSyntax;
      const std::string rule = quotes_names ? std::string(line) : WithoutTexts(line);
      NoteLine(rule, saved.native, unit);
      if (!absl::StrContains(rule, "KUBE-")) continue;
      if (++saved.count <= kMostExamples) {
        // A file may be a single line.
        saved.lines.push_back(absl::StrCat(number, ": ", line.substr(0, 200)));
      }
    }
    if (saved.count != 0) unit.files.push_back(std::move(saved));
  }

  // nft searches /etc for a path without a leading slash.
  void Include(absl::string_view line, Unit& unit) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, '"');
    if (parts.size() < 3 || parts[1].empty()) return;
    const std::string path =
        absl::StartsWith(parts[1], "/") ? std::string(parts[1]) : absl::StrCat("/etc/", parts[1]);
    for (const std::string& one : Matching(path)) ReadFileOf(one, /*required=*/true, unit);
  }

  void NoteLine(absl::string_view line, bool native, Unit& unit) {
    if (!native) {
      const absl::string_view set = WordAfter(line, "--match-set ");
      if (absl::StrContains(line, "--nfacct-name ") || (!set.empty() && !ipsets_.contains(set))) {
        unit.refusal = BootRefusal::kObject;
      }
    }
    absl::string_view head = line;
    if (absl::ConsumePrefix(&head, ":") || absl::ConsumePrefix(&head, "chain ")) {
      unit.declared.emplace(head.substr(0, head.find_first_of(" {")));
    } else if (const absl::string_view chain = JumpIn(line); !chain.empty()) {
      unit.used.emplace(chain);
    }
  }

  void Finish(Unit unit) {
    if (!absl::c_includes(unit.declared, unit.used)) unit.refusal = BootRefusal::kChain;
    for (SavedRules& saved : unit.files) {
      saved.refusal = unit.refusal;
      view_.facts.saved.push_back(std::move(saved));
    }
  }

  const NodeFiles& node_;
  NodeView& view_;
  std::set<std::string> seen_;
  std::set<std::string, std::less<>> ipsets_;
};

}  // namespace

void ReadBootRules(const NodeFiles& node, NodeView& view) { BootRulesReader(node, view).Read(); }

}  // namespace kipt::agent
