// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/actors/iptables_calls.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::Iptables;
using testing::KubeletStep;
using testing::ProgramResult;

constexpr char kMarkMasq[] = "KUBE-MARK-MASQ";

// `chain` of nat, to which packets with this destination type come, leads those to `port` to
// `target`.
Act AddUser(const IptablesChoice& iptables, const char* chain, std::vector<std::string> match,
            int port, const char* target) {
  std::vector<KubeletStep> steps = {EnsureChain("nat", chain)};
  for (const char* protocol : {"tcp", "udp"}) {
    steps.push_back({KubeletStep::Kind::kEnsureAppend,
                     "nat",
                     chain,
                     {"-p", protocol, "--dport", absl::StrCat(port), "-j", target}});
  }
  match.insert(match.end(), {"-j", chain});
  steps.push_back({KubeletStep::Kind::kEnsureAppend, "nat", "PREROUTING", std::move(match)});
  Act act;
  for (const IpFamily family : testing::kBothFamilies) {
    FamilyNotes notes(family, act);
    const testing::KubeletRun run = testing::RunKubelet(iptables.Of(family), steps);
    notes.Done(absl::StrCat(chain, ": ", run.rules_added, " rules added"));
    if (!run.error.empty()) notes.Failed(run.error);
  }
  return act;
}

}  // namespace

Act WriteCniConfig(const std::string& directory) {
  const std::string path = directory + "/10-podnet.conflist";
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  std::ofstream file(path);
  file << R"({"cniVersion": "1.0.0", "name": "podnet", "plugins": [
  {"type": "ptp"},
  {"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true},
   "externalSetMarkChain": "KUBE-MARK-MASQ"}]}
)";
  file.close();
  if (!file.good()) return {.ok = false, .error = "cannot write " + path};
  return {.done = {path + " names " + kMarkMasq}};
}

Act AddUserOfMarkDrop(const IptablesChoice& iptables, int port) {
  return AddUser(iptables, "USER-DROPS", {"-m", "addrtype", "--dst-type", "LOCAL"}, port,
                 "KUBE-MARK-DROP");
}

Act AddUserOfMarkMasq(const IptablesChoice& iptables, int port) {
  return AddUser(iptables, "USER-MASQ", {"-m", "addrtype", "!", "--dst-type", "LOCAL"}, port,
                 kMarkMasq);
}

Act Flush(const IptablesChoice& choice, const std::vector<std::string>& tables) {
  Act act;
  for (const IpFamily family : testing::kBothFamilies) {
    FamilyNotes notes(family, act);
    const Iptables iptables = choice.Of(family);
    for (const char* what : {"-F", "-X"}) {
      for (const std::string& table : tables) {
        const ProgramResult result = iptables.Run({"-w", "-t", table, what});
        const std::string command = absl::StrCat("iptables -t ", table, " ", what);
        if (result.exit_code == 0) {
          notes.Done(command);
        } else if (what == absl::string_view("-X")) {
          notes.Done(absl::StrCat(command, " was refused: ", WhatFailed(result)));
        } else {
          notes.Failed(absl::StrCat(command, ": ", WhatFailed(result)));
        }
      }
    }
  }
  return act;
}

}  // namespace kipt::skew
