// SPDX-License-Identifier: Apache-2.0
//
// What CellRun asks of the node, and how it judges the answers. What is done to the node is in
// cell_run.cc.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/skew/matrix/cell_run.h"
#include "tests/skew/matrix/judge.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::IptablesMode;

constexpr int kFirstNodePort = 30000;

}  // namespace

void CellRun::ExpectNoListener(Check& check) const {
  if (check.probe.port < kFirstNodePort || check.expected != Outcome::kReachedHost) return;
  const bool held = proxy_ != nullptr && RunsProxyProgram(options_, proxy_version_);
  const bool tcp = check.probe.protocol == Protocol::kTcp;
  // It accepts connections and answers nobody.
  check.expected = !held ? Outcome::kRejected : tcp ? Outcome::kOther : Outcome::kLost;
}

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
    if (cell_.path == Path::kLabelFlip) add(LabelQuestions(family));
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
    Check check = JudgeCheck(facts_[v6 ? 1 : 0], questions[i], (*results)[i]);
    if (OpensNodePorts()) ExpectNoListener(check);
    step.checks.push_back(std::move(check));
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
    StreamMoment moment;
    moment.before = before[family];
    moment.after = facts_[family];
    moment.afterwards = afterwards;
    moment.per_second = options_.stream_rate;
    moment.agent_repaired_flush = flushed_in_this_step_ && cell_.actor == Actor::kAgent;
    moment.proxy_changed_mode = proxy_changed_mode_in_this_step_ && !afterwards;
    // The agent writes all of them in one transaction.
    if (moved_in_this_step_ && cell_.actor == Actor::kKubelet) {
      moment.moved_kubelet = kubelet_version_;
    }
    step.streams.push_back(JudgeStream(moment, question, counts[i]));
  }
}

absl::Status CellRun::StartStreams() {
  const bool labels = cell_.path == Path::kLabelFlip;
  if (streams_ != nullptr || (!services_ && !labels)) return absl::OkStatus();
  std::vector<Probe> probes;
  const auto add = [&](std::vector<StreamQuestion> questions) {
    for (StreamQuestion& question : questions) {
      probes.push_back(question.probe);
      stream_questions_.push_back(std::move(question));
    }
  };
  for (const IpFamily family : testing::kBothFamilies) {
    if (services_) add(StreamQuestions(family));
    if (labels) add(LabelStreamQuestions(family));
  }
  absl::StatusOr<std::unique_ptr<Streams>> streams =
      Streams::Start(*node_, probes, StreamListeners(), options_.stream_rate);
  if (!streams.ok()) return streams.status();
  streams_ = *std::move(streams);
  return absl::OkStatus();
}

std::string CellRun::Rules() const {
  std::vector<IptablesMode> modes = {mode_};
  // What everybody moved away from still stands.
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

}  // namespace kipt::skew
