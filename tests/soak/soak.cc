// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/soak.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/soak/daemon.h"
#include "tests/soak/disturbances.h"
#include "tests/soak/floor.h"
#include "tests/soak/look.h"
#include "tests/soak/quiet.h"
#include "tests/soak/writer.h"
#include "tests/support/background_program.h"

namespace kipt::soak {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kBetweenQuietMoments = absl::Seconds(10);
constexpr absl::Duration kStartPatience = absl::Seconds(40);

std::vector<std::unique_ptr<Writer>> AllWriters() {
  std::vector<std::unique_ptr<Writer>> writers;
  writers.push_back(NewUsers());
  writers.push_back(NewKubeProxyWriter());
  writers.push_back(NewDamager(1));
  writers.push_back(NewDamager(2));
  writers.push_back(NewWrecker());
  writers.push_back(NewPolicySetter());
  writers.push_back(NewPortMapper());
  writers.push_back(NewStorm());
  writers.push_back(NewKubeletWriter());
  return writers;
}

// Threads that are joined.
class Crew {
 public:
  Crew() = default;
  ~Crew() { Join(); }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  void Add(std::function<void()> work) { threads_.emplace_back(std::move(work)); }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

// Without any rule every packet arrives. A stream that is silent even then would always be right.
void ExpectToHearAll(const Node& node, const TrafficJudge& judge) {
  for (const Transport transport : {kUdp, kTcp}) {
    for (unsigned i = 0; i < kGuards; ++i) {
      const Guard guard = static_cast<Guard>(i);
      if (!IsSent(transport, guard)) continue;
      if (testing::WaitUntil([&] { return judge.WasHeard(transport, guard); }, kStartPatience)) {
        continue;
      }
      node.journal.Violate(
          node.name(), "floor",
          absl::StrCat("proved nothing: ", NameOf(transport), " ", NameOf(guard), " is deaf"),
          "its packets arrive while no rule exists");
    }
  }
}

// Everybody has come, all stands, packets do what they should: from now on it is soaked.
bool Settle(Node& node, QuietMoments& quiet) {
  const bool settled = testing::WaitUntil(
      [&] { return !node.users_are_due && !node.proxy_is_due && node.windows.everything_stands(); },
      kStartPatience);
  if (!settled) {
    node.journal.Violate(node.name(), "in place", "not everything stands at the start",
                         "it does within " + absl::FormatDuration(kStartPatience));
  }
  node.windows.Expect(kAllGuards);
  quiet.Make();
  return settled;
}

absl::Status HoldNamespaces(const Node& node, std::vector<testing::Netns>& namespaces) {
  for (const skew::Place place : skew::kAllPlaces) {
    const testing::InNetns inside(node.place().At(place));
    absl::StatusOr<testing::Netns> held = testing::Netns::Current();
    if (!held.ok()) return held.status();
    namespaces.push_back(*std::move(held));
  }
  return absl::OkStatus();
}

}  // namespace

NodeSummary SoakNode(testing::IptablesMode mode, const Options& options, Journal& journal,
                     std::vector<testing::Netns>& namespaces) {
  NodeSummary summary{.name = NameOf(mode)};
  absl::StatusOr<std::unique_ptr<Node>> made = Node::Create(mode, options, journal);
  const absl::StatusOr<std::unique_ptr<Looker>> looker =
      made.ok() ? Looker::Create(**made) : made.status();
  if (!looker.ok()) {
    journal.Violate(summary.name, "harness", std::string(looker.status().message()),
                    "a node can be made");
    return summary;
  }
  Node& node = **made;
  if (const absl::Status held = HoldNamespaces(node, namespaces); !held.ok()) {
    journal.Violate(summary.name, "harness", std::string(held.message()),
                    "its namespaces can be held");
    return summary;
  }
  Daemon daemon(node);
  QuietMoments quiet(node, daemon);
  TrafficJudge judge(node.name(), node.windows, journal);
  Samples samples;
  std::atomic<bool> started = false;
  const std::vector<std::unique_ptr<Writer>> writers = AllWriters();
  Crew crew;
  node.calm = true;
  crew.Add([&] { SendDatagrams(node, judge); });
  crew.Add([&] { MakeConnections(node, judge); });
  ExpectToHearAll(node, judge);
  crew.Add([&] { Disturb(node, daemon, started); });
  testing::WaitUntil([&] { return started.load(); }, kStartPatience);
  crew.Add([&] { Watch(node, **looker); });
  for (const auto& writer : writers) crew.Add([&node, &writer] { Run(*writer, node); });
  Settle(node, quiet);
  node.BeginSoak();
  crew.Add([&] { TakeSamples(node, daemon, samples); });
  crew.Add([&] { Scrape(node, daemon); });

  const absl::Time end = absl::Now() + options.length;
  const auto is_over = [&] { return absl::Now() >= end || journal.Violated(options.must_fail); };
  while (!is_over()) {
    const absl::Time next = std::min(end, absl::Now() + kBetweenQuietMoments);
    while (!is_over() && absl::Now() < next) absl::SleepFor(absl::Milliseconds(50));
    if (options.cripple == Cripple::kNone) quiet.Make();
  }
  summary.run = node.Soaked();
  node.ended = true;
  crew.Join();
  judge.Decide(/*everything=*/true);
  summary.samples = samples.all();
  JudgeGrowth(summary.name, summary.samples, summary.run, journal);
  summary.counts = journal.counts(node.name());
  summary.repairs = node.windows.repairs();
  summary.longest_return = node.windows.longest_return();
  summary.quiet = quiet.took();
  summary.checks = node.windows.checks();
  summary.traffic = judge.counts();
  JudgeFloor(summary, options, journal);
  return summary;
}

std::set<ino_t> InodesOf(const std::vector<testing::Netns>& namespaces) {
  std::set<ino_t> inodes;
  for (const testing::Netns& netns : namespaces) {
    struct stat status = {};
    if (stat(netns.Path().c_str(), &status) == 0) inodes.insert(status.st_ino);
  }
  return inodes;
}

void JudgeRemains(const std::set<ino_t>& namespaces, Journal& journal) {
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string name = process.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    struct stat status = {};
    if (stat((process.path() / "ns/net").c_str(), &status) != 0) continue;
    if (namespaces.count(status.st_ino) == 0) continue;
    journal.Violate("all", "processes",
                    absl::StrCat("process ", name, " is left in a namespace of the soak"),
                    "nobody");
  }
  if (waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD) {
    journal.Violate("all", "processes", "a child is left", "none");
  }
}

}  // namespace kipt::soak
