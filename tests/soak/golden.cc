// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/golden.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/run_program.h"

namespace kipt::soak {
namespace {

using testing::IpFamily;
using testing::KubeletForm;
using testing::KubeletSequence;
using testing::KubeletStep;
using testing::ProgramResult;
using Arguments = std::vector<std::string>;

constexpr size_t kMostDifferences = 12;

// "-A CHAIN ..." to CHAIN.
std::string ChainOf(const std::string& line) {
  const size_t end = line.find(' ', 3);
  return line.substr(3, end == std::string::npos ? end : end - 3);
}

// Whose order is nobody's business: who inserts a jump first comes second, and in KUBE-FIREWALL are
// drops alone.
bool IsUnordered(const std::string& chain) {
  constexpr const char* kChains[] = {"INPUT",      "OUTPUT",      "FORWARD",
                                     "PREROUTING", "POSTROUTING", "KUBE-FIREWALL"};
  return std::find(std::begin(kChains), std::end(kChains), chain) != std::end(kChains);
}

// Of one table, by chain in their order; chains under "".
std::map<std::string, Lines> ByChain(const Lines& lines) {
  std::map<std::string, Lines> chains;
  for (const std::string& line : lines) {
    chains[line.front() == ':' ? "" : ChainOf(line)].push_back(line);
  }
  return chains;
}

// Whether `some` stand in `all` in this order.
bool IsInOrder(const Lines& some, const Lines& all) {
  auto at = all.begin();
  for (const std::string& line : some) {
    at = std::find(at, all.end(), line);
    if (at == all.end()) return false;
    ++at;
  }
  return true;
}

class Comparison {
 public:
  Comparison(const TableId& table, const Lines& seen)
      : name_(absl::StrCat(NameOf(table.first), " ", table.second, ": ")), seen_(ByChain(seen)) {
    for (const std::string& line : seen) ++surplus_[line];
  }

  void Expect(const std::string& whose, const Lines& lines, bool base_chains_are_ordered) {
    for (const std::string& line : lines) {
      if (--surplus_[line] < 0) Tell(absl::StrCat("missing, of ", whose, ": ", line));
    }
    for (const auto& [chain, of_chain] : ByChain(lines)) {
      if (chain.empty() || (IsUnordered(chain) && !base_chains_are_ordered)) continue;
      if (!IsInOrder(of_chain, seen_[chain])) {
        Tell(absl::StrCat("not in the order of ", whose, ": chain ", chain));
      }
    }
  }

  Lines Differences() {
    for (const auto& [line, count] : surplus_) {
      if (count > 0) Tell(absl::StrCat("too many by ", count, ": ", line));
    }
    return std::move(differences_);
  }

 private:
  void Tell(const std::string& what) { differences_.push_back(name_ + what); }

  const std::string name_;
  std::map<std::string, Lines> seen_;
  std::map<std::string, int> surplus_;
  Lines differences_;
};

using Steps = std::vector<KubeletStep>;
struct FamilySteps {
  IpFamily family;
  Steps steps;
};

constexpr char kCanary[] = "KUBE-KUBELET-CANARY";

// What kubelet 1.25 to 1.27 makes with the gate off.
std::vector<FamilySteps> InLegacyMode(testing::KubeletBits bits) {
  std::vector<FamilySteps> all;
  for (const IpFamily family : testing::kBothFamilies) {
    all.push_back({family, KubeletSequence(KubeletForm::k1_27GateOff, family, bits)});
  }
  // The agent differs: kubelet forgot the jumps of IPv6, without which its drop mark has no effect.
  for (const char* base : {"OUTPUT", "INPUT"}) {
    all.back().steps.push_back(
        {KubeletStep::Kind::kEnsurePrepend, "filter", base, {"-j", "KUBE-FIREWALL"}});
  }
  return all;
}

// What kubelet makes with the gate on.
std::vector<FamilySteps> InCleanupMode(testing::KubeletBits bits) {
  std::vector<FamilySteps> all;
  for (const IpFamily family : testing::kBothFamilies) {
    all.push_back({family, KubeletSequence(KubeletForm::k1_27GateOn, family, bits)});
    // The agent differs: it makes no canary in cleanup mode, and with it no nat table.
    std::erase_if(all.back().steps, [](const KubeletStep& step) { return step.chain == kCanary; });
  }
  return all;
}

// What is left of legacy mode once the gate is on. Kubelet removes nothing; the agent differs: with
// `staleChains: retire` it removes what no other program uses.
struct StaleRow {
  const char* table;
  const char* chain;
  // The rule in it that acts on this comment alone; without one, the chain and the jumps to it.
  const char* comment;
  bool (*stays)(const Scene& scene, IpFamily family);
};

// Up to 1.24 kube-proxy drops by KUBE-MARK-DROP; later ones have a chain of their own.
bool DropMarkIsUsed(const Scene& scene, IpFamily /*family*/) {
  return scene.users.drop || (scene.proxy && scene.proxy->minor <= 24);
}
// Every kube-proxy keeps KUBE-MARK-MASQ and KUBE-POSTROUTING as its own.
bool MasqueradeMarkIsUsed(const Scene& scene, IpFamily /*family*/) {
  return scene.users.masq || scene.proxy.has_value();
}
// IPv4 has the martian rule in cleanup mode too.
bool FirewallIsUsed(const Scene& scene, IpFamily family) {
  return family == IpFamily::kIpv4 || scene.proxy.has_value() || DropMarkIsUsed(scene, family);
}

// The canaries stay in every case: a live kubelet takes a missing one for a flush.
constexpr StaleRow kStaleRows[] = {
    {"filter", "KUBE-FIREWALL", "kubernetes firewall for dropping marked packets", DropMarkIsUsed},
    {"filter", "KUBE-FIREWALL", nullptr, FirewallIsUsed},
    {"nat", "KUBE-MARK-DROP", nullptr, DropMarkIsUsed},
    {"nat", "KUBE-POSTROUTING", nullptr, MasqueradeMarkIsUsed},
    {"nat", "KUBE-MARK-MASQ", nullptr, MasqueradeMarkIsUsed},
};

bool Has(const Arguments& rule, const std::string& word) {
  return std::find(rule.begin(), rule.end(), word) != rule.end();
}

// Kubelet on a node of its own, by the commands that it runs.
class Kubelet {
 public:
  Kubelet(const Scene& scene, const skew::IptablesChoice& iptables)
      : scene_(scene), iptables_(iptables) {}

  void Ensure(const std::vector<FamilySteps>& all) {
    for (const auto& [family, steps] : all) {
      const testing::KubeletRun run = testing::RunKubelet(iptables_.Of(family), steps);
      if (!run.error.empty()) status_.Update(absl::InternalError(run.error));
    }
  }

  void RemoveWhatNobodyUses() {
    for (const auto& [family, steps] : InLegacyMode(scene_.settings.bits)) {
      for (const StaleRow& row : kStaleRows) {
        if (!row.stays(scene_, family)) Remove(family, steps, row);
      }
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  void Remove(IpFamily family, const Steps& steps, const StaleRow& row) {
    for (const KubeletStep& step : steps) {
      if (step.table != row.table) continue;
      const bool goes = row.comment == nullptr
                            ? Has(step.rule, row.chain)
                            : step.chain == row.chain && Has(step.rule, row.comment);
      if (!goes) continue;
      Arguments arguments = {"-w", "-t", step.table, "-D", step.chain};
      arguments.insert(arguments.end(), step.rule.begin(), step.rule.end());
      Run(family, arguments);
    }
    if (row.comment != nullptr) return;
    Run(family, {"-w", "-t", row.table, "-F", row.chain});
    Run(family, {"-w", "-t", row.table, "-X", row.chain});
  }
  void Run(IpFamily family, const Arguments& arguments) {
    const ProgramResult result = iptables_.Of(family).Run(arguments);
    if (result.exit_code == 0) return;
    status_.Update(absl::InternalError(
        absl::StrCat("iptables ", absl::StrJoin(arguments, " "), ": ", result.err)));
  }

  const Scene& scene_;
  const skew::IptablesChoice iptables_;
  absl::Status status_;
};

}  // namespace

void AddSaved(const std::string& saved, IpFamily family, Rules& rules) {
  TableId table = {family, ""};
  for (absl::string_view line : absl::StrSplit(saved, '\n')) {
    if (absl::ConsumePrefix(&line, "*")) table.second = std::string(line);
    if (absl::StartsWith(line, "-A ")) rules[table].emplace_back(line);
    if (!absl::StartsWith(line, ":")) continue;
    line = line.substr(0, line.rfind(" ["));
    if (!absl::EndsWith(line, " ACCEPT")) rules[table].emplace_back(line);
  }
}

absl::StatusOr<Rules> SavedRules(testing::IptablesMode mode) {
  Rules rules;
  for (const IpFamily family : testing::kBothFamilies) {
    const ProgramResult saved = testing::Iptables{family, "", mode}.Save();
    if (saved.exit_code != 0) return absl::InternalError("iptables-save: " + saved.err);
    if (absl::StrContains(saved.out, "incompatible")) return absl::InternalError(saved.out);
    AddSaved(saved.out, family, rules);
  }
  return rules;
}

std::string Scene::Text() const {
  return absl::StrCat(settings.Text(), ", kube-proxy ",
                      proxy ? absl::StrCat("1.", proxy->minor) : "none", ", services ", services,
                      ", ", users.Text());
}

absl::StatusOr<Rules> Golden::Get() {
  const Scene scene = {node_.settings, node_.proxy, node_.services, node_.users};
  const auto known = known_.find(scene.Text());
  if (known != known_.end()) return known->second;
  absl::StatusOr<Rules> made = GoldenRules(scene, node_.mode());
  if (made.ok()) known_[scene.Text()] = *made;
  return made;
}

absl::StatusOr<Rules> GoldenRules(const Scene& scene, testing::IptablesMode mode) {
  const absl::StatusOr<testing::Netns> netns = testing::Netns::Create();
  if (!netns.ok()) return netns.status();
  const testing::InNetns inside(*netns);
  const skew::IptablesChoice iptables = {mode, ""};
  Kubelet kubelet(scene, iptables);
  kubelet.Ensure(InLegacyMode(scene.settings.bits));
  const skew::Act users = PutUsers(iptables, UserSet());
  if (!users.ok) return absl::InternalError(users.error);
  if (scene.proxy) {
    const skew::Act proxy = NewProxy(iptables, *scene.proxy)
                                ->Start(ServicesOf(scene.services, IpFamily::kIpv4),
                                        ServicesOf(scene.services, IpFamily::kIpv6));
    if (!proxy.ok) return absl::InternalError(proxy.error);
  }
  // A kube-proxy from 1.27 on has emptied KUBE-FIREWALL of IPv4.
  kubelet.Ensure(InLegacyMode(scene.settings.bits));
  TakeUsersAway(iptables, scene.users);
  if (scene.settings.cleanup) {
    kubelet.RemoveWhatNobodyUses();
    kubelet.Ensure(InCleanupMode(scene.settings.bits));
  }
  if (!kubelet.status().ok()) return kubelet.status();
  return SavedRules(mode);
}

Lines DifferencesOf(const Rules& seen, const Rules& golden, const Ledger& ledger) {
  Lines all;
  for (const IpFamily family : testing::kBothFamilies) {
    for (const char* name : kTables) {
      const TableId table = {family, name};
      const auto of = [&table](const Rules& rules) {
        const auto found = rules.find(table);
        return found == rules.end() ? Lines() : found->second;
      };
      Comparison comparison(table, of(seen));
      comparison.Expect("kubelet, kube-proxy and users", of(golden), false);
      for (const auto& [writer, lines] : ledger.Of(table)) comparison.Expect(writer, lines, true);
      for (std::string& line : comparison.Differences()) all.push_back(std::move(line));
    }
  }
  if (all.size() > kMostDifferences) {
    const size_t more = all.size() - kMostDifferences;
    all.resize(kMostDifferences);
    all.push_back(absl::StrCat("and ", more, " more"));
  }
  return all;
}

}  // namespace kipt::soak
