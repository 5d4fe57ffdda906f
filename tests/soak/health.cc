// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/health.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/http_get.h"
#include "tests/support/netns.h"
#include "tests/support/process_cost.h"

namespace kipt::soak {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kBetweenSamples = absl::Seconds(1);
// Until then it may still be starting.
constexpr absl::Duration kGrownUp = absl::Seconds(3);
constexpr int kZombieSamples = 5;
constexpr absl::Duration kBetweenRequests = absl::Milliseconds(200);
// What malloc keeps depends on which chunks happened to be free when others were asked for. A leak
// of a hundred bytes a repair is more than this over the thousands of repairs of half an hour.
constexpr int64_t kMayGrowKib = 256;
// Of a short run what has happened for the first time in its last quarter (a look at everybody's
// rules before something is retired leaves half a megabyte with malloc) cannot be told from a leak.
constexpr absl::Duration kShortRun = absl::Minutes(5);
constexpr int64_t kMayGrowInAShortRunKib = 1024;

// Children of any of its threads, with their state ("Z").
std::map<int, char> ChildrenOf(pid_t process) {
  std::map<int, char> children;
  std::error_code error;
  for (const auto& task : fs::directory_iterator(absl::StrCat("/proc/", process, "/task"), error)) {
    std::ifstream file(task.path() / "children");
    for (int child = 0; file >> child;) {
      std::ifstream stat(absl::StrCat("/proc/", child, "/stat"));
      std::string text;
      std::getline(stat, text);
      const size_t behind_name = text.rfind(") ");
      if (behind_name != std::string::npos) children[child] = text[behind_name + 2];
    }
  }
  return children;
}

// The value of a metric without labels.
int64_t MetricIn(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + name.size() + 2);
}

void Sleep(const Node& node, absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  while (!node.ended && absl::Now() < end) absl::SleepFor(absl::Milliseconds(50));
}

}  // namespace

void Samples::Add(const Sample& sample) {
  const std::lock_guard<std::mutex> lock(mutex_);
  samples_.push_back(sample);
}

std::vector<Sample> Samples::all() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return samples_;
}

void TakeSamples(Node& node, const Daemon& daemon, Samples& samples) {
  ZombieJudge zombies;
  for (; !node.ended; Sleep(node, kBetweenSamples)) {
    const pid_t pid = daemon.pid();
    if (pid <= 0 || absl::Now() - daemon.started() < kGrownUp) continue;
    const std::map<int, char> children = ChildrenOf(pid);
    const Sample sample = {.at = node.Soaked(),
                           .anonymous_kib = testing::MemoryOf(pid).anonymous_kib,
                           .descriptors = testing::DescriptorsOf(pid),
                           .threads = static_cast<int64_t>(testing::ThreadCosts(pid).size()),
                           .children = static_cast<int64_t>(children.size())};
    // It has ended in between.
    if (sample.anonymous_kib == 0 || daemon.pid() != pid) continue;
    samples.Add(sample);
    node.journal.Event(node.name(), absl::StrCat("RssAnon ", sample.anonymous_kib, " KiB of ", pid,
                                                 ", ", sample.descriptors, " descriptors"));
    if (node.windows.daemon_is_away()) continue;  // a stopped one reaps nobody
    for (const int child : zombies.See(children)) {
      node.journal.Violate(node.name(), "processes",
                           absl::StrCat("process ", child, " is a zombie"),
                           "a process that starts a program waits for it");
    }
  }
}

std::vector<int> ZombieJudge::See(const std::map<int, char>& children) {
  std::map<int, int> samples;
  std::vector<int> found;
  for (const auto& [child, state] : children) {
    if (state != 'Z') continue;
    samples[child] = samples_[child] + 1;
    if (samples[child] == kZombieSamples) found.push_back(child);
  }
  samples_ = std::move(samples);
  return found;
}

std::optional<absl::Duration> SilenceJudge::See(absl::Time now, bool answered, bool can_answer) {
  if (answered || !can_answer) answered_ = now;
  if (answered) reported_ = false;
  if (now - answered_ <= bound_ || reported_) return std::nullopt;
  reported_ = true;
  return now - answered_;
}

std::string MetricsFault(int status, const std::string& body) {
  if (status == 200 && absl::StrContains(body, "kube_iptables_agent_syncs_total")) return "";
  return absl::StrCat("/metrics: status ", status, ", ", body.size(), " bytes");
}

void Scrape(Node& node, const Daemon& daemon) {
  const testing::InNetns inside(node.netns());
  const absl::Duration bound = node.options().limits.repair;
  SilenceJudge silence(bound, absl::Now());
  int64_t lost = 0;
  for (int i = 0; !node.ended; ++i) {
    Sleep(node, kBetweenRequests);
    const bool metrics = i % 2 == 0;
    const testing::HttpAnswer answer =
        metrics ? testing::HttpGet(kMetricsPort, "/metrics", "GET", absl::Seconds(1))
                : testing::HttpGet(kHealthPort, "/readyz", "GET", absl::Seconds(1));
    // One that has just started needs a moment.
    const bool can_answer =
        !node.windows.daemon_is_away() && absl::Now() - daemon.started() >= kGrownUp;
    const auto silent = silence.See(absl::Now(), answer.status != 0, can_answer);
    if (silent) {
      node.journal.Violate(node.name(), "endpoints",
                           "no answer for " + absl::FormatDuration(*silent),
                           "an answer within " + absl::FormatDuration(bound));
    }
    if (answer.status == 0) continue;
    node.journal.Count(node.name(), "requests answered");
    if (!metrics) continue;
    const std::string fault = MetricsFault(answer.status, answer.body);
    if (!fault.empty()) {
      node.journal.Violate(node.name(), "endpoints", fault, "status 200 and all metrics");
      continue;
    }
    const int64_t now = MetricIn(answer.body, "kube_iptables_agent_events_overrun_total");
    // Another process begins at 0.
    if (now > lost) node.journal.Count(node.name(), "events lost", now - lost);
    lost = now;
  }
}

int64_t MedianOf(const std::vector<Sample>& samples, absl::Duration run, double from, double to,
                 int64_t Sample::*of) {
  std::vector<int64_t> values;
  for (const Sample& sample : samples) {
    if (sample.at >= run * from && sample.at <= run * to) values.push_back(sample.*of);
  }
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void JudgeGrowth(const std::string& node, const std::vector<Sample>& samples, absl::Duration run,
                 Journal& journal) {
  struct Row {
    const char* what;
    int64_t Sample::*of;
    int64_t may_grow;
  };
  // Nothing to compare: JudgeFloor() reports it.
  if (MedianOf(samples, run, 0.25, 0.5, &Sample::threads) == 0) return;
  // A legacy round has pipes and programs of its own while it runs.
  const int64_t may_grow = run < kShortRun ? kMayGrowInAShortRunKib : kMayGrowKib;
  for (const Row& row :
       {Row{"RssAnon, KiB", &Sample::anonymous_kib, may_grow},
        Row{"descriptors", &Sample::descriptors, 2}, Row{"threads", &Sample::threads, 0},
        Row{"children", &Sample::children, 1}}) {
    const int64_t early = MedianOf(samples, run, 0.25, 0.5, row.of);
    const int64_t late = MedianOf(samples, run, 0.75, 1.0, row.of);
    if (late <= early + row.may_grow) continue;
    journal.Violate(
        node, "memory",
        absl::StrCat(row.what, ": median of the second quarter ", early, ", of the last ", late),
        absl::StrCat("at most ", row.may_grow, " more"));
  }
}

}  // namespace kipt::soak
