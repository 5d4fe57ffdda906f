// SPDX-License-Identifier: Apache-2.0
//
// What `audit --before=kube-proxy-nftables` reports before kube-proxy changes its mode, compared
// with what is known of the node. What then happens the following steps show.
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/skew/actors/third_parties.h"
#include "tests/skew/kube_proxy/nfacct.h"
#include "tests/skew/matrix/cell_run.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using nlohmann::json;
using testing::IpFamily;

// About this machine's kernel and files, which are no cell's.
constexpr const char* kOfTheMachine[] = {"KernelTooOld", "KernelLacksModules", "NftTooOld",
                                         "SavedRules"};

constexpr char kMarkMasq[] = "nat/KUBE-MARK-MASQ";

std::string Finding(const char* severity, const char* kind, const std::string& family,
                    const char* chain) {
  return absl::StrCat(severity, " ", kind, " ", family, family.empty() ? "" : " ", chain);
}

// What becomes of the users of KUBE-MARK-MASQ.
std::string UsersFail(const FamilyFacts& facts) {
  return Finding("error", "ChainUser", facts.family == IpFamily::kIpv4 ? "ip" : "ip6", kMarkMasq);
}

}  // namespace

std::set<std::string> CellRun::ExpectedFindings() const {
  std::set<std::string> expected;
  // A kubelet with the gate off keeps its chains, so that their users go on working.
  const char* users = CleansUp(kubelet_version_) ? "error" : "warning";
  for (const FamilyFacts& facts : facts_) {
    const std::string family = facts.family == IpFamily::kIpv4 ? "ip" : "ip6";
    if (facts.user_drop) expected.insert(Finding(users, "ChainUser", family, "nat/KUBE-MARK-DROP"));
    if (!facts.user_masq && !facts.host_port) continue;
    expected.insert(Finding(users, "ChainUser", family, kMarkMasq));
    expected.insert(Finding("warning", "CleanupBlocked", family, kMarkMasq));
  }
  if (users_) expected.insert(Finding(users, "CniConfig", "", kMarkMasq));
  // The checks of the steps before have used one.
  const bool counts = Does(proxy_version_.version, Trait::kNfacct) && EnsureCounters();
  if (services_ && counts) {
    expected.insert(Finding("error", "LocalhostNodePorts", "ip", "nat/KUBE-NODEPORTS"));
  }
  return expected;
}

void CellRun::AuditBeforeNftables(Done done) {
  const std::string program = cell_.program.empty() ? options_.audit_program : cell_.program;
  if (program.empty()) return;
  std::vector<std::string> command = {program,
                                      "audit",
                                      "--before=kube-proxy-nftables",
                                      "--output=json",
                                      "--ip-families=ipv4,ipv6",
                                      absl::StrCat("--cni-conf-dir=", kCniConfDir)};
  if (!CleansUp(kubelet_version_)) {
    command.insert(command.end(),
                   {"--emulated-version=1.27", "--feature-gates=IPTablesOwnershipCleanup=false"});
  }
  const testing::ProgramResult audit = testing::RunProgram(command);
  const json report = json::parse(audit.out, nullptr, /*allow_exceptions=*/false);
  std::set<std::string> reported;
  for (const json& finding :
       report.is_object() ? report.value("findings", json::array()) : json()) {
    const std::string kind = finding.value("id", "");
    const std::string severity = finding.value("severity", "");
    if (severity == "info" || absl::c_linear_search(kOfTheMachine, kind)) continue;
    reported.insert(Finding(severity.c_str(), kind.c_str(), finding.value("family", ""),
                            finding.value("chain", "").c_str()));
  }
  const std::set<std::string> expected = ExpectedFindings();
  Act act = {.ok = !report.is_discarded() && reported == expected,
             .done = {absl::StrCat("audit --before=kube-proxy-nftables: ",
                                   reported.empty() ? "nothing" : absl::StrJoin(reported, ", "))}};
  if (!act.ok) {
    act.error = absl::StrCat("audit --before=kube-proxy-nftables did not report ",
                             expected.empty() ? "nothing" : absl::StrJoin(expected, ", "), ", but ",
                             reported.empty() ? "nothing" : absl::StrJoin(reported, ", "),
                             audit.err.empty() ? "" : absl::StrCat(": ", audit.err));
  }
  done.Take(act);
  predicted_ = reported;
}

void CellRun::JudgePrediction(const FamilyFacts& facts, bool works, Done done) const {
  if (!predicted_ || predicted_->contains(UsersFail(facts)) != works) return;
  done.Take({.ok = false,
             .error = works ? "audit reported that KUBE-MARK-MASQ's users would fail; they do not"
                            : "audit did not report that KUBE-MARK-MASQ's users would fail"});
}

}  // namespace kipt::skew
