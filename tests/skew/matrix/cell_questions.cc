// SPDX-License-Identifier: Apache-2.0
//
// What CellRun asks of the node, and how it judges the answers. What is done to the node is in
// cell_run.cc.
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/skew/matrix/cell_run.h"
#include "tests/skew/matrix/expectations.h"
#include "tests/skew/matrix/label_streams.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::IptablesMode;

// What of the packets themselves was wrong, though the outcome was right.
std::string Complaint(const Question& question, const ProbeResult& result) {
  // Labels and marks drop what they are to drop, and not each other's.
  const bool by_label = absl::StrContains(result.dropped_by, "KUBELET-FIREWALL");
  if (!result.dropped_by.empty() && by_label != (question.about == About::kLabelled)) {
    return absl::StrCat("was dropped by ", result.dropped_by);
  }
  if (question.balanced_over == 0) return "";
  const int receivers = static_cast<int>(result.receivers.size());
  if (receivers != question.balanced_over) {
    return absl::StrCat("went to ", receivers, " endpoints, not ", question.balanced_over);
  }
  if (question.balanced_over == 1) return "";
  const double share = 1.0 / question.balanced_over;
  const double mean = result.sent * share;
  const double deviation = std::sqrt(result.sent * share * (1 - share));
  for (const auto& [place, count] : result.receivers) {
    if (std::abs(count - mean) > 5 * deviation) {
      return absl::StrCat(place, " got ", count, " of ", result.sent, " connections");
    }
  }
  return "";
}

}  // namespace

absl::Status CellRun::Ask(StepReport& step) {
  std::vector<Question> questions;
  const auto add = [&questions](const std::vector<Question>& more) {
    questions.insert(questions.end(), more.begin(), more.end());
  };
  for (const IpFamily family : testing::kBothFamilies) {
    add(DirectQuestions(family));
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
    const Expectation expectation = Expect(facts_[v6 ? 1 : 0], questions[i]);
    Check check;
    check.probe = questions[i].probe;
    check.result = (*results)[i];
    check.sound = expectation.sound;
    check.expected = expectation.expected;
    if (expectation.or_else == check.result.outcome) check.expected = check.result.outcome;
    check.because = expectation.because;
    if (check.result.outcome == check.sound) {
      check.complaint = Complaint(questions[i], check.result);
    }
    step.checks.push_back(std::move(check));
  }
  return absl::OkStatus();
}

void CellRun::JudgeStreams(const std::vector<FamilyFacts>& before, StepReport& step) {
  if (streams_ == nullptr) return;
  const std::vector<StreamCount> counts = streams_->Take();
  for (size_t i = 0; i < counts.size(); ++i) {
    const StreamQuestion& question = stream_questions_[i];
    const size_t family = question.probe.family == IpFamily::kIpv6 ? 1 : 0;
    if (question.about == About::kLabelled) {
      step.streams.push_back(JudgeLabelStream(before[family], facts_[family], question, counts[i]));
      continue;
    }
    StreamCheck check;
    check.count = counts[i];
    check.rule = question.rule;
    check.bad = question.about == About::kService
                    ? check.count.sent - check.count.served_masqueraded
                    : check.count.reached_host + check.count.forwarded + check.count.served +
                          check.count.served_masqueraded;
    check.because = StreamFails(before[family], question);
    if (check.because.empty()) check.because = StreamFails(facts_[family], question);
    if (!check.because.empty()) {
      check.allowed = check.count.sent;
    } else if (flushed_in_this_step_ && question.about == About::kMartian) {
      // The kernel tells the agent of the flush once it has been done.
      check.allowed = static_cast<uint64_t>(options_.stream_rate) / 4;
      check.because = "flushed by somebody else, until the agent has put it back";
    } else if (moved_in_this_step_ && cell_.actor == Actor::kKubelet) {
      // The agent writes all of them in one transaction.
      check.allowed = static_cast<uint64_t>(options_.stream_rate) / 4;
      check.because =
          "kubelet adds the rules of KUBE-POSTROUTING one by one: while the last is missing the "
          "mark is cleared, and the legacy rules that come next see none";
    }
    step.streams.push_back(std::move(check));
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
