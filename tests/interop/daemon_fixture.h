// SPDX-License-Identifier: Apache-2.0
//
// `kube-iptables-agent run` in the test's own network namespace, so its endpoints have their own
// ports.
#ifndef KIPT_TESTS_INTEROP_DAEMON_FIXTURE_H_
#define KIPT_TESTS_INTEROP_DAEMON_FIXTURE_H_

#include "tests/interop/agent_fixture.h"
#include "tests/support/http_get.h"

namespace kipt::testing {

inline constexpr int kHealthPort = 10270;
inline constexpr int kMetricsPort = 10271;

class DaemonTest : public AgentTest {
 protected:
  // Starts it and waits until it is ready.
  void Start(const AgentSettings& settings, const std::vector<std::string>& more_flags = {},
             const std::vector<std::string>& environment = {});
  // Starts it without waiting for anything.
  void StartOnly(const std::vector<std::string>& flags,
                 const std::vector<std::string>& environment = {});
  // Starts any other command line as the daemon.
  void StartProgram(const std::vector<std::string>& argv,
                    const std::vector<std::string>& environment = {});
  BackgroundProgram& daemon() { return *daemon_; }
  // Ends it with `signal`; its exit code.
  int Stop(int signal);

  static bool IsReady();
  bool BecomesReady();
  static std::string Readyz();
  // The sum over all series of a metric whose line begins with `name` and contains `labels`.
  static double Metric(const std::string& name, const std::string& labels = "");
  bool MetricReaches(const std::string& name, double value, const std::string& labels = "");
  // Leaves `file` with nothing but the gate IPTablesOwnershipCleanup.
  static void WriteGate(const TemporaryFile& file, bool cleanup);
  // Everything that `plan` would change is in place again.
  bool BecomesClean(const AgentSettings& settings);

 private:
  std::unique_ptr<BackgroundProgram> daemon_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_DAEMON_FIXTURE_H_
