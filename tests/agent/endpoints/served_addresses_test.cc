// SPDX-License-Identifier: Apache-2.0
//
// The daemon's addresses: opened, passed by systemd, in use by another program, and tried again.
// The steady clock of this program only moves when a test moves it.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/endpoints/endpoints.h"
#include "tests/agent/endpoints/raw_http_client.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace {

std::atomic<int64_t> steady_seconds = 1;

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (clock != CLOCK_MONOTONIC) return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  *time = {.tv_sec = steady_seconds, .tv_nsec = 0};
  return 0;
}

namespace kipt::agent {
namespace {

constexpr absl::string_view kListening = "info: Listening on http://";
constexpr absl::string_view kKept =
    "; rules are kept in place without this address, which is retried every 5s";

std::string InUse(const std::string& address) {
  return absl::StrCat("cannot listen on ", address,
                      ": Address already in use; stop what listens there, or choose another "
                      "address");
}

// Another program's, or systemd's. Destroyed, its address is free.
struct Socket {
  OwnedFd fd;
  std::string address = {};
};

Socket ListeningSocket() {
  Socket made = {.fd = OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  absl::StatusOr<BindAddress> address = ParseBindAddress("127.0.0.1:0");
  EXPECT_THAT(address, IsOk());
  EXPECT_EQ(bind(made.fd.get(), address->get(), address->size), 0);
  EXPECT_EQ(listen(made.fd.get(), 8), 0);
  EXPECT_EQ(getsockname(made.fd.get(), address->get(), &address->size), 0);
  made.address = ToString(*address);
  return made;
}

HttpHandler Says(const std::string& text) {
  return [text](const HttpRequest& /*request*/) { return HttpReply{.body = text}; };
}

std::string Ask(const std::string& address) {
  RawHttpClient client(address);
  client.Send(Get("/"));
  return client.Receive();
}

class ServedAddressesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
    ASSERT_THAT(loop, IsOk());
    loop_ = *std::move(loop);
  }
  // GoogleTest measures tests with this clock.
  ~ServedAddressesTest() override { steady_seconds = 1; }

  void Make(const std::vector<std::pair<std::string, std::string>>& addresses_and_bodies) {
    std::vector<ServedAddresses::Endpoint> endpoints;
    endpoints.reserve(addresses_and_bodies.size());
    for (const auto& [address, body] : addresses_and_bodies) {
      endpoints.push_back({.address = address, .handler = Says(body)});
    }
    served_ = std::make_unique<ServedAddresses>(
        *loop_, std::move(endpoints),
        ServedAddresses::Handlers{
            .notice =
                [this](absl::LogSeverity severity, absl::string_view sentence) {
                  notices_.push_back(absl::StrCat(
                      severity == absl::LogSeverity::kInfo ? "info: " : "warning: ", sentence));
                },
            .changed = [this] { changes_.push_back(served_->problem()); }});
  }

  std::vector<std::string> TakeNotices() { return std::exchange(notices_, {}); }
  std::vector<std::string> TakeChanges() { return std::exchange(changes_, {}); }

  void Pass(int seconds) {
    steady_seconds += seconds;
    ASSERT_THAT(loop_->Dispatch(), IsOk());
  }
  void EndTheLoop() {
    loop_->Exit(0);
    ASSERT_THAT(loop_->Run(), IsOkAndHolds(0));
  }

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ServedAddresses> served_;
  std::vector<std::string> notices_;
  std::vector<std::string> changes_;
};

TEST_F(ServedAddressesTest, AnAddressInUseIsReportedOnceAndServedWithinFiveSecondsOfBeingFree) {
  Socket first = ListeningSocket();
  Socket second = ListeningSocket();
  Make({{first.address, "one"}, {"127.0.0.1:0", "two"}, {second.address, "three"}});
  served_->Listen({});
  EXPECT_THAT(TakeNotices(), ElementsAre(absl::StrCat("warning: ", InUse(first.address), kKept),
                                         absl::StrCat("warning: ", InUse(second.address), kKept)));
  served_->Serve();
  EXPECT_THAT(TakeNotices(), ElementsAre(StartsWith(kListening)));
  EXPECT_EQ(served_->problem(), absl::StrCat(InUse(first.address), "; ", InUse(second.address)));
  Pass(5);
  EXPECT_THAT(TakeNotices(), IsEmpty()) << "the same as before";
  EXPECT_THAT(TakeChanges(), IsEmpty());

  first.fd.Close();
  Pass(4);
  EXPECT_THAT(TakeNotices(), IsEmpty()) << "not due yet";
  Pass(1);
  EXPECT_THAT(TakeNotices(), ElementsAre(absl::StrCat(kListening, first.address)));
  EXPECT_THAT(TakeChanges(), ElementsAre(InUse(second.address)));
  EXPECT_THAT(Ask(first.address), EndsWith("one"));

  second.fd.Close();
  Pass(5);
  EXPECT_THAT(TakeNotices(), ElementsAre(absl::StrCat(kListening, second.address)));
  EXPECT_THAT(TakeChanges(), ElementsAre(""));
  EXPECT_THAT(Ask(second.address), EndsWith("three"));
}

TEST_F(ServedAddressesTest, APassedDescriptorThatIsNotOfUseIsReportedAndClosed) {
  Socket other = ListeningSocket();
  Make({{"127.0.0.1:0", "one"}});
  OwnedFd no_socket(epoll_create1(EPOLL_CLOEXEC));
  ASSERT_TRUE(no_socket.valid());
  std::vector<OwnedFd> passed;
  passed.push_back(std::move(no_socket));
  passed.push_back(std::move(other.fd));
  served_->Listen(std::move(passed));
  EXPECT_THAT(
      TakeNotices(),
      ElementsAre("warning: A socket that systemd passed is not used: not a TCP socket that "
                  "listens",
                  absl::StrCat("warning: The socket ", other.address,
                               ", which systemd passed, is not used: no such address is "
                               "configured; change ListenStream= of the .socket unit")));
  EXPECT_THAT(HttpServer::Bind(other.address), IsOk()) << "it is free";
  served_->Serve();
  EXPECT_THAT(TakeNotices(), ElementsAre(StartsWith(kListening)));
}

struct StartRow {
  std::string name;
  FailingCall failing;
};
// sizeof(clone_args) of the kernel that glibc was built for.
constexpr uint32_t kCloneArgumentsSize = 88;
const StartRow kStartRows[] = {
    {"no descriptor is left",
     {.number = SYS_epoll_create1, .argument = 0, .value = EPOLL_CLOEXEC, .error = EMFILE}},
    {"no thread can be started",
     {.number = SYS_clone3, .argument = 1, .value = kCloneArgumentsSize, .error = EAGAIN}},
};

TEST_F(ServedAddressesTest, AServerThatCannotStartIsReportedAndStartedLater) {
  for (const StartRow& row : kStartRows) {
    SCOPED_TRACE(row.name);
    Socket passed = ListeningSocket();
    Make({{passed.address, "one"}});
    std::vector<OwnedFd> fds;
    fds.push_back(std::move(passed.fd));
    served_->Listen(std::move(fds));
    WithFailingCall(row.failing, [&] { served_->Serve(); });
    const std::string failure = absl::StrCat("cannot serve ", passed.address);
    EXPECT_THAT(TakeNotices(), ElementsAre(AllOf(StartsWith(absl::StrCat("warning: ", failure)),
                                                 EndsWith(kKept))));
    EXPECT_THAT(served_->problem(), StartsWith(failure));
    Pass(5);
    EXPECT_THAT(TakeNotices(), ElementsAre(absl::StrCat(kListening, passed.address)));
    EXPECT_THAT(TakeChanges(), ElementsAre(""));
    EXPECT_THAT(Ask(passed.address), EndsWith("one"));
  }
}

TEST_F(ServedAddressesTest, WithoutATimerItReportsThatNothingIsRetried) {
  const Socket used = ListeningSocket();
  Make({{used.address, "one"}});
  served_->Listen({});
  TakeNotices();
  EndTheLoop();
  served_->Serve();
  EXPECT_THAT(TakeNotices(), ElementsAre(StartsWith("warning: Addresses are not retried: cannot "
                                                    "make a timer: ")));
}

}  // namespace
}  // namespace kipt::agent
