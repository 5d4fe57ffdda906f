// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/world.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/netns.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

// Others' rules: in tables of ours, beside and inside of chains of ours.
constexpr char kForeignRules[] = R"(*nat
:FOREIGN - [0:0]
-A FOREIGN -p tcp -m tcp --dport 7 -m comment --comment foreign -j ACCEPT
-A POSTROUTING -p tcp -m tcp --dport 7 -m comment --comment foreign -j FOREIGN
COMMIT
*filter
:FOREIGN - [0:0]
:KUBE-FIREWALL - [0:0]
-A FOREIGN -p tcp -m tcp --dport 7 -m comment --comment foreign -j DROP
-A INPUT -p tcp -m tcp --dport 7 -m comment --comment foreign -j FOREIGN
-A FORWARD -p tcp -m tcp --dport 7 -m comment --comment foreign -j FOREIGN
-A KUBE-FIREWALL -p tcp -m tcp --dport 7 -m comment --comment foreign -j RETURN
COMMIT
)";
constexpr char kForeignTable[] =
    "add table inet foreign\n"
    "add chain inet foreign input { type filter hook input priority 10; }\n"
    "add rule inet foreign input tcp dport 7 drop comment \"foreign\"\n";

// What is done to rules that stood.
std::string Damage(bool cleanup, IpFamily family) {
  std::string text = "*mangle\n-X KUBE-IPTABLES-HINT\nCOMMIT\n";
  if (!cleanup || family == IpFamily::kIpv4) {
    absl::StrAppend(&text,
                    "*filter\n-D KUBE-FIREWALL 1\n-D INPUT -j KUBE-FIREWALL\n"
                    "-A FORWARD -p tcp -m tcp --dport 9 -j FOREIGN\nCOMMIT\n");
  }
  if (!cleanup) absl::StrAppend(&text, "*nat\n-F KUBE-POSTROUTING\nCOMMIT\n");
  return text;
}

// Chains of one table, by name: how each is declared, and its rules in their order.
std::string TextOf(const std::map<std::string, std::vector<std::string>>& chains) {
  std::string text;
  for (const auto& [chain, lines] : chains) {
    absl::StrAppend(&text, absl::StrJoin(lines, "\n"), "\n");
  }
  return text;
}

// "*filter", ":INPUT ACCEPT [1:2]", "-A INPUT ..."
void AddSaved(const std::string& family, const std::string& saved, KernelText& text) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> tables;
  std::string table;
  for (const absl::string_view line : absl::StrSplit(saved, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (absl::StartsWith(line, "*")) {
      table = std::string(line.substr(1));
      tables[table];
    } else if (absl::StartsWith(line, ":") && words.size() >= 2) {
      tables[table][std::string(words[0].substr(1))].push_back(
          absl::StrCat(words[0], " ", words[1]));
    } else if (absl::StartsWith(line, "-A") && words.size() >= 2) {
      tables[table][std::string(words[1])].emplace_back(line);
    }
  }
  for (const auto& [name, chains] : tables) {
    text.parts[absl::StrCat(family, " ", name)] = TextOf(chains);
  }
}

// nft's list, its tables and chains sorted.
std::string SortedRuleset(const std::string& listed) {
  std::map<std::string, std::vector<std::string>> blocks;
  std::string table;
  std::string chain;
  for (const absl::string_view line : absl::StrSplit(listed, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "table ")) {
      table = std::string(line);
      chain.clear();
    } else if (absl::StartsWith(line, "\tchain ")) {
      chain = std::string(line);
    }
    blocks[absl::StrCat(table, chain)].emplace_back(line);
    if (line == "\t}") chain.clear();
  }
  return TextOf(blocks);
}

std::string TrimmedProblem(const ProgramResult& result) {
  return absl::StrCat("exit code ", result.exit_code, ": ", result.err);
}

std::string PartOf(const KernelText& text, const std::string& name) {
  const auto part = text.parts.find(name);
  return part == text.parts.end() ? "" : part->second;
}

std::set<std::string> PartNames(const KernelText& a, const KernelText& b, const KernelText& c) {
  std::set<std::string> names;
  for (const KernelText* text : {&a, &b, &c}) {
    for (const auto& [name, part] : text->parts) names.insert(name);
  }
  return names;
}

// What is written at once with the part `name`.
std::string UnitOf(const std::string& name, Atomicity atomicity) {
  if (atomicity == Atomicity::kTable) return name;
  if (atomicity == Atomicity::kWhole) return "the kernel";
  return name.substr(0, name.find(' '));
}

}  // namespace

KernelText ReadNftables() {
  KernelText text;
  const ProgramResult listed = RunProgram({"/usr/sbin/nft", "-s", "list", "ruleset"});
  if (listed.exit_code != 0) text.problem = TrimmedProblem(listed);
  text.parts[kNftPart] = SortedRuleset(listed.out);
  return text;
}

KernelText ReadKernel(IptablesMode mode) {
  KernelText text = ReadNftables();
  for (const IpFamily family : kBothFamilies) {
    const ProgramResult saved = Iptables{.family = family, .mode = mode}.Save();
    if (saved.exit_code != 0) text.problem = TrimmedProblem(saved);
    AddSaved(family == IpFamily::kIpv4 ? "ip" : "ip6", saved.out, text);
  }
  return text;
}

std::string HalfDone(const KernelText& now, const KernelText& before, const KernelText& wanted,
                     Atomicity atomicity) {
  if (!now.problem.empty()) return now.problem;
  std::map<std::string, bool> as_before;
  std::map<std::string, bool> as_wanted;
  for (const std::string& name : PartNames(now, before, wanted)) {
    const std::string unit = UnitOf(name, atomicity);
    const std::string part = PartOf(now, name);
    as_before.emplace(unit, true).first->second &= part == PartOf(before, name);
    as_wanted.emplace(unit, true).first->second &= part == PartOf(wanted, name);
  }
  for (const auto& [unit, same] : as_before) {
    if (same || as_wanted[unit]) continue;
    return absl::StrCat(unit, " is neither as before nor as desired:\n", Difference(now, wanted));
  }
  return "";
}

std::string Difference(const KernelText& a, const KernelText& b) {
  std::string text = absl::StrCat(a.problem, b.problem);
  for (const std::string& name : PartNames(a, b, b)) {
    const std::vector<std::string> ours = absl::StrSplit(PartOf(a, name), '\n');
    const std::vector<std::string> theirs = absl::StrSplit(PartOf(b, name), '\n');
    if (ours == theirs) continue;
    const std::multiset<std::string> in_a(ours.begin(), ours.end());
    const std::multiset<std::string> in_b(theirs.begin(), theirs.end());
    absl::StrAppend(&text, "  ", name, in_a == in_b ? " (another order)" : "", "\n");
    for (const std::string& line : std::set<std::string>(in_a.begin(), in_a.end())) {
      if (in_a.count(line) > in_b.count(line)) absl::StrAppend(&text, "    is:     ", line, "\n");
    }
    for (const std::string& line : std::set<std::string>(in_b.begin(), in_b.end())) {
      if (in_b.count(line) > in_a.count(line)) absl::StrAppend(&text, "    is not: ", line, "\n");
    }
  }
  return text;
}

std::string NameOf(const Scene& scene) {
  const char* state = scene.state == StartState::kCold   ? "cold"
                      : scene.state == StartState::kWarm ? "warm"
                                                         : "damaged";
  return absl::StrCat(NameOf(scene.iptables), ", ", scene.cleanup ? "cleanup" : "legacy", ", ",
                      state);
}

Programs BuiltPrograms() {
  return {.agent = KIPT_AGENT_PROGRAM, .layer = KIPT_FAULT_LAYER, .stand_in = KIPT_FAULT_STAND_IN};
}

Programs ProgramsIn(const std::string& directory) {
  const auto moved = [&](const std::string& path) {
    return absl::StrCat(directory, path.substr(path.rfind('/')));
  };
  const Programs built = BuiltPrograms();
  return {
      .agent = moved(built.agent), .layer = moved(built.layer), .stand_in = moved(built.stand_in)};
}

std::vector<std::string> FlagsOf(const Scene& scene) {
  std::vector<std::string> flags = {
      absl::StrCat("--feature-gates=IPTablesOwnershipCleanup=", scene.cleanup ? "true" : "false")};
  if (scene.state == StartState::kCold && scene.iptables == IptablesMode::kLegacy) {
    flags.push_back("--iptables-mode=legacy");
  }
  return flags;
}

ControlPage::ControlPage(const Programs& programs) : fd_(memfd_create("faults", MFD_CLOEXEC)) {
  if (fd_ < 0 || ftruncate(fd_, sizeof(Control)) != 0) std::abort();
  void* memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) std::abort();
  control_ = static_cast<Control*>(memory);
  std::strncpy(control_->stand_in, programs.stand_in.c_str(), sizeof(control_->stand_in) - 1);
  environment_ = {absl::StrCat("LD_PRELOAD=", programs.layer),
                  absl::StrCat(kControlVariable, "=/proc/", getpid(), "/fd/", fd_)};
}

ControlPage::~ControlPage() {
  munmap(control_, sizeof(Control));
  close(fd_);
}

std::string Restore(IptablesMode mode, IpFamily family, const std::string& text) {
  const ProgramResult result = Iptables{.family = family, .mode = mode}.Restore(text);
  return result.exit_code == 0 ? "" : absl::StrCat("iptables-restore: ", TrimmedProblem(result));
}

std::string PutForeignRules(IptablesMode mode) {
  for (const IpFamily family : kBothFamilies) {
    if (std::string problem = Restore(mode, family, kForeignRules); !problem.empty()) {
      return problem;
    }
  }
  if (mode == IptablesMode::kLegacy) return "";
  const ProgramResult result = RunProgram({"/usr/sbin/nft", "-f", "-"}, kForeignTable);
  return result.exit_code == 0 ? "" : TrimmedProblem(result);
}

std::string Prepare(const Scene& scene, const Programs& programs) {
  const absl::Status moved = Netns::MoveToNew();
  if (!moved.ok()) return std::string(moved.message());
  std::string problem = PutForeignRules(scene.iptables);
  if (!problem.empty() || scene.state == StartState::kCold) return problem;
  Scene cold = scene;
  cold.state = StartState::kCold;
  std::vector<std::string> sync = FlagsOf(cold);
  sync.insert(sync.begin(), {programs.agent, "sync"});
  const ProgramResult result = RunProgram(std::move(sync));
  if (result.exit_code != 0) return TrimmedProblem(result);
  if (scene.state == StartState::kWarm) return "";
  for (const IpFamily family : kBothFamilies) {
    problem = Restore(scene.iptables, family, Damage(scene.cleanup, family));
    if (!problem.empty()) return absl::StrCat("damaging it: ", problem);
  }
  return "";
}

}  // namespace kipt::testing
