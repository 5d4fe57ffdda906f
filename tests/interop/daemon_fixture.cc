// SPDX-License-Identifier: Apache-2.0
#include "tests/interop/daemon_fixture.h"

namespace kipt::testing {

void DaemonTest::StartOnly(const std::vector<std::string>& flags,
                           const std::vector<std::string>& environment) {
  StartProgram(Words{AgentProgram(), "run"} + flags, environment);
}

void DaemonTest::StartProgram(const std::vector<std::string>& argv,
                              const std::vector<std::string>& environment) {
  // Its ports are needed. Not killed: a program that it was about to run would hold them for a
  // moment longer.
  if (daemon_ != nullptr && daemon_->Running()) Stop(SIGTERM);
  daemon_.reset();
  daemon_ = std::make_unique<BackgroundProgram>(argv, environment);
}

void DaemonTest::Start(const AgentSettings& settings, const std::vector<std::string>& more_flags,
                       const std::vector<std::string>& environment) {
  StartOnly(settings.Flags() + more_flags, environment);
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
}

int DaemonTest::Stop(int signal) {
  daemon().Signal(signal);
  return daemon().Wait();
}

bool DaemonTest::IsReady() { return HttpGet(kHealthPort, "/readyz").status == 200; }

bool DaemonTest::BecomesReady() {
  return WaitUntil([&] { return IsReady() || !daemon().Running(); }) && daemon().Running();
}

std::string DaemonTest::Readyz() { return HttpGet(kHealthPort, "/readyz?verbose").body; }

double DaemonTest::Metric(const std::string& name, const std::string& labels) {
  const std::string text = HttpGet(kMetricsPort, "/metrics").body;
  double sum = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, name) || !absl::StrContains(line, labels)) continue;
    const char next = line.size() > name.size() ? line[name.size()] : '\0';
    if (next != ' ' && next != '{') continue;
    sum += std::atof(std::string(line.substr(line.rfind(' ') + 1)).c_str());
  }
  return sum;
}

bool DaemonTest::MetricReaches(const std::string& name, double value, const std::string& labels) {
  return WaitUntil([&] { return Metric(name, labels) >= value; });
}

void DaemonTest::WriteGate(const TemporaryFile& file, bool cleanup) {
  std::ofstream(file.path()) << kConfigHead << "featureGates: {IPTablesOwnershipCleanup: "
                             << (cleanup ? "true" : "false") << "}\n";
}

bool DaemonTest::BecomesClean(const AgentSettings& settings) {
  return WaitUntil([&] { return Agent("plan", settings).exit_code == kExitOk; });
}

}  // namespace kipt::testing
