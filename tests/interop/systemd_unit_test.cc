// SPDX-License-Identifier: Apache-2.0
//
// The systemd unit, as far as systemd itself can judge it without being PID 1 here.
#include <cstdlib>
#include <sstream>

#include "tests/interop/agent_fixture.h"

namespace kipt::testing {
namespace {

namespace fs = std::filesystem;

class SystemdUnitTest : public AgentTest {
 protected:
  // The unit as installed, with the built program in the installed one's place.
  void SetUp() override {
    AgentTest::SetUp();
    Install("kube-iptables-agent.service", unit());
  }

  fs::path unit() const { return fs::path(directory_.directory()) / "kube-iptables-agent.service"; }

  static void Install(const std::string& file, const fs::path& target) {
    std::ostringstream text;
    text << std::ifstream(fs::path(KIPT_DEPLOY_DIR) / "systemd" / file).rdbuf();
    ASSERT_THAT(text.str(), HasSubstr("/usr/sbin/kube-iptables-agent run"));
    fs::create_directories(target.parent_path());
    std::ofstream(target) << absl::StrReplaceAll(
        text.str(), {{"/usr/sbin/kube-iptables-agent", AgentProgram()}});
  }
  static void ExpectNothingWrong(const fs::path& unit) {
    const ProgramResult result =
        RunProgram({"systemd-analyze", "verify", "--man=no", unit.string()});
    EXPECT_EQ(result.exit_code, 0) << result;
    EXPECT_THAT(result.err, IsEmpty());
  }
  // From 0, nothing exposed, to 10.
  double Exposure() const {
    const std::string text =
        Output({"systemd-analyze", "security", "--offline=yes", "--no-pager", unit().string()});
    const std::string before = "Overall exposure level for kube-iptables-agent.service: ";
    const size_t at = text.find(before);
    EXPECT_NE(at, std::string::npos) << text;
    return at == std::string::npos ? 10 : std::atof(text.c_str() + at + before.size());
  }

  TemporaryFile directory_{""};
};

TEST_F(SystemdUnitTest, IsRightAndExposesLittleAndLessWithTheDropIn) {
  ExpectNothingWrong(unit());
  EXPECT_LE(Exposure(), 2.4);
  Install("nft-unprivileged.conf", unit().string() + ".d/nft-unprivileged.conf");
  ExpectNothingWrong(unit());
  EXPECT_LE(Exposure(), 2.0);
}

// Installed next to the service, where systemd-analyze must find it.
TEST_F(SystemdUnitTest, TheSocketUnitHoldsTheDefaultPorts) {
  const fs::path socket = fs::path(unit()).replace_extension("socket");
  fs::copy_file(fs::path(KIPT_DEPLOY_DIR) / "systemd" / "kube-iptables-agent.socket", socket);
  ExpectNothingWrong(socket);
  const std::string text = FileText(socket);
  for (const std::string address : {"127.0.0.1:10270", "127.0.0.1:10271"}) {
    EXPECT_THAT(text, HasSubstr("\nListenStream=" + address + "\n"));
    EXPECT_THAT(Agent({"run", "--help"}).out, HasSubstr(address));
  }
}

}  // namespace
}  // namespace kipt::testing
