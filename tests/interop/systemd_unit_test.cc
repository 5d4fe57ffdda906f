// SPDX-License-Identifier: Apache-2.0
//
// The systemd unit, as far as systemd itself can judge it without being PID 1 here.

#include "absl/strings/str_split.h"
#include "tests/interop/agent_fixture.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

namespace fs = std::filesystem;

class SystemdUnitTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    Output(
        {"cmake", "--install", KIPT_BUILD_DIR, "--component", "agent", "--prefix", tree_.root()});
  }

  fs::path unit() const { return tree_.Path("lib/systemd/system/kube-iptables-agent.service"); }

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

  TemporaryTree tree_;
};

TEST_F(SystemdUnitTest, IsRightAndExposesLittleAndLessWithTheDropIn) {
  ExpectNothingWrong(unit());
  EXPECT_LE(Exposure(), 2.4);
  fs::create_directory(unit().string() + ".d");
  fs::copy(tree_.Path("share/doc/kube-iptables-agent/examples/nft-unprivileged.conf"),
           unit().string() + ".d");
  ExpectNothingWrong(unit());
  EXPECT_LE(Exposure(), 2.0);
}

// Installed next to the service, where systemd-analyze must find it.
TEST_F(SystemdUnitTest, TheSocketUnitHoldsTheDefaultPorts) {
  const fs::path socket = unit().replace_extension("socket");
  ExpectNothingWrong(socket);
  const std::string text = FileText(socket);
  for (const std::string address : {"127.0.0.1:10270", "127.0.0.1:10271"}) {
    EXPECT_THAT(text, HasSubstr("\nListenStream=" + address + "\n"));
    EXPECT_THAT(Agent({"run", "--help"}).out, HasSubstr(address));
  }
}

// As packaged it says observe: true. The defaults, which write, are no substitute.
TEST_F(SystemdUnitTest, WithoutTheInstalledConfigurationTheServiceWritesNothing) {
  const std::string config = tree_.Path("etc/kube-iptables-agent/config.yaml");
  ASSERT_TRUE(fs::remove(config));
  const std::string text = FileText(unit());
  const size_t at = text.find("\nExecStart=") + 11;
  const ProgramResult result =
      RunProgram(Words(absl::StrSplit(text.substr(at, text.find('\n', at) - at), ' ')));
  EXPECT_EQ(result.exit_code, 64) << result;
  EXPECT_THAT(result.err, HasSubstr(config));
  EXPECT_THAT(Output({"iptables-nft-save"}), Not(HasSubstr("KUBE-")));
}

}  // namespace
}  // namespace kipt::testing
