// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/golden.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/run_program.h"

namespace kipt::soak {
namespace {

using testing::IpFamily;
using testing::ProgramResult;

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

void Read(const std::string& saved, IpFamily family, Rules& rules) {
  TableId table = {family, ""};
  for (absl::string_view line : absl::StrSplit(saved, '\n')) {
    if (absl::ConsumePrefix(&line, "*")) table.second = std::string(line);
    if (absl::StartsWith(line, "-A ")) rules[table].emplace_back(line);
    if (!absl::StartsWith(line, ":")) continue;
    line = line.substr(0, line.rfind(" ["));
    if (!absl::EndsWith(line, " ACCEPT")) rules[table].emplace_back(line);
  }
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

}  // namespace

absl::StatusOr<Rules> SavedRules(testing::IptablesMode mode) {
  Rules rules;
  for (const IpFamily family : testing::kBothFamilies) {
    const ProgramResult saved = testing::Iptables{family, "", mode}.Save();
    if (saved.exit_code != 0) return absl::InternalError("iptables-save: " + saved.err);
    if (absl::StrContains(saved.out, "incompatible")) return absl::InternalError(saved.out);
    Read(saved.out, family, rules);
  }
  return rules;
}

absl::StatusOr<Rules> Golden::Get() {
  const std::string key =
      absl::StrCat(node_.settings.Text(), ", kube-proxy ", node_.proxy ? node_.proxy->minor : 0,
                   ", services ", node_.services, ", ", node_.users.Text());
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  absl::StatusOr<Rules> made = Make();
  if (made.ok()) known_[key] = *made;
  return made;
}

absl::StatusOr<Rules> Golden::Make() const {
  const absl::StatusOr<testing::Netns> netns = testing::Netns::Create();
  if (!netns.ok()) return netns.status();
  const testing::InNetns inside(*netns);
  LetMartiansIn();
  const testing::ScratchDirectory files;
  if (!files.MakeDirectory("cni")) return absl::InternalError("no directory in /run");
  const auto sync = [&](const AgentSettings& settings) {
    std::ofstream(files.Path("config.yaml")) << settings.FileText();
    const ProgramResult result =
        testing::RunProgram({KIPT_AGENT_PROGRAM, "sync", "--config=" + files.Path("config.yaml"),
                             absl::StrCat("--iptables-mode=", NameOf(node_.mode())),
                             "--cni-conf-dir=" + files.Path("cni")});
    // 2: in place, and there is something to be said.
    if (result.exit_code == 0 || result.exit_code == 2) return absl::OkStatus();
    return absl::InternalError("sync: " + result.err + result.out);
  };
  AgentSettings legacy = node_.settings;
  legacy.cleanup = false;
  absl::Status status = sync(legacy);
  if (!status.ok()) return status;
  const skew::Act users = PutUsers(node_.Choice(), UserSet());
  if (!users.ok) return absl::InternalError(users.error);
  if (node_.proxy) {
    const skew::Act proxy = NewProxy(node_.Choice(), *node_.proxy)
                                ->Start(ServicesOf(node_.services, IpFamily::kIpv4),
                                        ServicesOf(node_.services, IpFamily::kIpv6));
    if (!proxy.ok) return absl::InternalError(proxy.error);
  }
  TakeUsersAway(node_.Choice(), node_.users);
  status = sync(node_.settings);
  if (!status.ok()) return status;
  return SavedRules(node_.mode());
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
