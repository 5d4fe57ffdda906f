// SPDX-License-Identifier: Apache-2.0
//
// What CellRun asks of the node, and how it judges the answers. What is done to the node is in
// cell_run.cc.
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/matrix/cell_run.h"
#include "tests/skew/matrix/judge.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::IptablesMode;

using nlohmann::json;

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

absl::Status CellRun::Ask(StepReport& step) {
  std::vector<Question> questions;
  const auto add = [&questions](const std::vector<Question>& more) {
    questions.insert(questions.end(), more.begin(), more.end());
  };
  for (const IpFamily family : testing::kBothFamilies) {
    add(DirectQuestions(family));
    if (proxy_version_.mode == ProxyMode::kIpvs) add(HairpinQuestions(family));
    if (services_) add(ServiceQuestions(family));
    if (users_) add(UserQuestions(family));
  }
  for (const Question& question : MartianQuestions()) {
    if (services_ || question.about == About::kMartian) questions.push_back(question);
  }
  std::vector<Probe> probes;
  probes.reserve(questions.size());
  for (const Question& question : questions) probes.push_back(question.probe);
  const absl::StatusOr<std::vector<ProbeResult>> results = battery_->Ask(probes, mode_);
  if (!results.ok()) return results.status();
  for (size_t i = 0; i < questions.size(); ++i) {
    const bool v6 = questions[i].probe.family == IpFamily::kIpv6;
    step.checks.push_back(JudgeCheck(facts_[v6 ? 1 : 0], questions[i], (*results)[i]));
  }
  return absl::OkStatus();
}

void CellRun::JudgeStreams(const std::vector<FamilyFacts>& before, bool afterwards,
                           StepReport& step) {
  if (streams_ == nullptr) return;
  const std::vector<StreamCount> counts = streams_->Take();
  for (size_t i = 0; i < counts.size(); ++i) {
    const StreamQuestion& question = stream_questions_[i];
    const size_t family = question.probe.family == IpFamily::kIpv6 ? 1 : 0;
    StreamMoment moment = {
        .before = before[family],
        .after = facts_[family],
        .afterwards = afterwards,
        .agent_repaired_flush = flushed_in_this_step_ && cell_.actor == Actor::kAgent,
        .proxy_changed_mode = proxy_changed_mode_in_this_step_ && !afterwards};
    // The agent writes all of them in one transaction.
    if (moved_in_this_step_ && cell_.actor == Actor::kKubelet) {
      moment.moved_kubelet = kubelet_version_;
    }
    step.streams.push_back(JudgeStream(moment, question, counts[i]));
  }
}

absl::Status CellRun::StartStreams() {
  if (streams_ != nullptr || !services_) return absl::OkStatus();
  std::vector<Probe> probes;
  for (const IpFamily family : testing::kBothFamilies) {
    for (StreamQuestion& question : StreamQuestions(family)) {
      probes.push_back(question.probe);
      stream_questions_.push_back(std::move(question));
    }
  }
  absl::StatusOr<std::unique_ptr<Streams>> streams =
      Streams::Start(*node_, probes, StreamListeners(), kPacketsPerSecond);
  if (!streams.ok()) return streams.status();
  streams_ = *std::move(streams);
  return absl::OkStatus();
}

std::string CellRun::Rules() const {
  std::vector<IptablesMode> modes = {mode_};
  // The rules of the mode that all programs moved away from still exist.
  if (cell_.path == Path::kToNft && mode_ == IptablesMode::kNft) {
    modes.push_back(IptablesMode::kLegacy);
  }
  std::string text;
  for (const IptablesMode mode : modes) {
    for (const IpFamily family : testing::kBothFamilies) {
      const testing::ProgramResult saved = testing::Iptables{family, "", mode}.Save();
      absl::StrAppend(&text, family == IpFamily::kIpv4 ? "# IPv4, " : "# IPv6, ",
                      testing::NameOf(mode), "\n");
      for (absl::string_view line : absl::StrSplit(saved.out, '\n')) {
        if (!line.empty() && line[0] != '#') absl::StrAppend(&text, line, "\n");
      }
    }
  }
  return text;
}

// What `audit --before=kube-proxy-nftables` reports before kube-proxy changes its mode, compared
// with what is known of the node. What then happens the following steps show.

std::set<std::string> CellRun::ExpectedFindings() const {
  std::set<std::string> expected;
  // A kubelet with the gate off keeps its chains, so that their users go on working.
  const char* users = CleansUp(kubelet_version_) ? "error" : "warning";
  for (const FamilyFacts& facts : facts_) {
    const std::string family = facts.family == IpFamily::kIpv4 ? "ip" : "ip6";
    if (facts.user_drop) expected.insert(Finding(users, "ChainUser", family, "nat/KUBE-MARK-DROP"));
    if (!facts.user_masq) continue;
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
  if (cell_.program.empty()) return;
  std::vector<std::string> command = {cell_.program,
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
