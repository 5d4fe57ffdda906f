// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "agent/process/command.h"
#include "agent/process/own_process.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

// A service manager that keeps what the agent sends.
class ServiceManagerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(socket_, 0);
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    const std::string name = "kipt-notify-" + std::to_string(getpid());
    // An abstract address: it begins with a zero byte, which systemd writes as an @.
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    ASSERT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
              0);
    ASSERT_EQ(setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1), 0);
  }
  void TearDown() override {
    unsetenv("NOTIFY_SOCKET");
    close(socket_);
  }

  // The next message; empty where there is none.
  std::string Sent() const {
    std::array<char, 8192> buffer;
    const ssize_t size = recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0) return "";
    return {buffer.data(), static_cast<size_t>(size)};
  }

  ServiceManager manager_;

 private:
  int socket_ = -1;
};

TEST_F(ServiceManagerTest, IsNotifiedOfStartAndEnd) {
  manager_.Ready();
  EXPECT_EQ(Sent(), "READY=1");
  manager_.Stopping();
  EXPECT_EQ(Sent(), "STOPPING=1");
  EXPECT_EQ(Sent(), "");
}

TEST_F(ServiceManagerTest, IsNotifiedWhenAReloadBegan) {
  const auto microseconds = [] {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
  };
  const int64_t before = microseconds();
  manager_.Reloading();
  const int64_t after = microseconds();
  const std::string sent = Sent();
  absl::string_view rest = sent;
  ASSERT_TRUE(absl::ConsumePrefix(&rest, "RELOADING=1\nMONOTONIC_USEC=")) << sent;
  int64_t then = 0;
  ASSERT_TRUE(absl::SimpleAtoi(rest, &then)) << sent;
  EXPECT_GE(then, before);
  EXPECT_LE(then, after);
}

TEST_F(ServiceManagerTest, GetsAStatusOfOneLineWhateverIsInIt) {
  manager_.Status("ip6 failed: caf\u00e9\nREADY=1\x7f\t!");
  EXPECT_EQ(Sent(), "STATUS=ip6 failed: caf\u00e9\\nREADY=1\\x7f\\t!");
  manager_.Status(std::string(1023, 'x') + "\u00e9 and more");
  EXPECT_EQ(Sent(), "STATUS=" + std::string(1023, 'x')) << "its beginning, and no half character";
}

TEST_F(ServiceManagerTest, GetsTheNewestOfEachKindOnceItReadsAgain) {
  while (NotifyServiceManager("X=1")) {
  }
  manager_.Ready();
  manager_.Status("first");
  manager_.Reloading();
  manager_.Status("second");
  manager_.Ready();
  while (Sent() == "X=1") {
  }
  EXPECT_EQ(Sent(), "");
  manager_.NotifyRest();
  EXPECT_THAT(Sent(), StartsWith("RELOADING=1"));
  EXPECT_EQ(Sent(), "STATUS=second");
  EXPECT_EQ(Sent(), "READY=1");
  EXPECT_EQ(Sent(), "");
}

TEST_F(ServiceManagerTest, CanBeTalkedToTwiceButNotByThePrograms) {
  manager_.Ready();
  EXPECT_NE(getenv("NOTIFY_SOCKET"), nullptr);
  const auto result = NewCommandRunner()->Run({.program = "/usr/bin/env"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->output, Not(HasSubstr("NOTIFY_SOCKET")));
}

TEST(NoServiceManagerTest, GetsNothing) {
  unsetenv("NOTIFY_SOCKET");
  ServiceManager manager;
  manager.Ready();
  manager.Status("x");
  manager.Reloading();
  manager.Stopping();
  // Nor does one that has ended.
  ASSERT_EQ(setenv("NOTIFY_SOCKET", "/no/such/socket", 1), 0);
  manager.Ready();
  unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace kipt::agent
