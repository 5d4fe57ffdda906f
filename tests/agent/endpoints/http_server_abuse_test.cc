// SPDX-License-Identifier: Apache-2.0
//
// HttpServer among clients that mean no good.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/endpoints/http_server.h"
#include "tests/agent/endpoints/raw_http_client.h"
#include "tests/support/process_cost.h"

namespace kipt::agent {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

TEST(HttpServerAbuseTest, ClosesAConnectionThatSaysNoMore) {
  const std::unique_ptr<HttpServer> server = Serve();
  RawHttpClient client(*server);
  client.Send("GET /ok HTT");
  EXPECT_THAT(Exchange(*server, Get("/ok")), EndsWith("\r\n\r\nok")) << "others are served";
  const absl::Time start = absl::Now();
  client.Receive(absl::Seconds(20));
  EXPECT_TRUE(client.closed());
  EXPECT_GT(absl::Now() - start, absl::Seconds(8));
  EXPECT_LT(absl::Now() - start, absl::Seconds(15));
}

TEST(HttpServerAbuseTest, WhoeverHoldsPlacesDoesNotKeepOthersOut) {
  const std::unique_ptr<HttpServer> server = Serve();
  std::vector<std::unique_ptr<RawHttpClient>> idle;
  // From one address, then from many.
  for (uint32_t i = 0; i < 20; ++i) idle.push_back(std::make_unique<RawHttpClient>(*server));
  for (uint32_t i = 0; i < 180; ++i) {
    idle.push_back(std::make_unique<RawHttpClient>(*server, INADDR_LOOPBACK + 1 + i));
    if (i % 20 == 0) {
      EXPECT_THAT(Exchange(*server, Get("/ok")), EndsWith("\r\n\r\nok")) << i;
    }
  }
  const absl::Time start = absl::Now();
  EXPECT_THAT(Exchange(*server, Get("/ok")), EndsWith("\r\n\r\nok"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  int open = 0;
  for (const std::unique_ptr<RawHttpClient>& client : idle) {
    client->Receive(absl::ZeroDuration());
    open += client->closed() ? 0 : 1;
  }
  EXPECT_LE(open, 32);
  EXPECT_GT(open, 16) << "nobody is closed without need";
}

TEST(HttpServerAbuseTest, WhoAsksStaysAndWhoIsSilentGoes) {
  const std::unique_ptr<HttpServer> server = Serve();
  RawHttpClient regular(*server);
  RawHttpClient silent(*server);
  for (int i = 0; i < 3; ++i) {
    // A whole request makes it the last to go, although it came first.
    regular.Send("GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(regular.ReceiveUntil("\r\n\r\nok"), EndsWith("ok"));
  }
  const RawHttpClient third(*server);
  const RawHttpClient fourth(*server);
  const RawHttpClient fifth(*server);
  silent.Receive(absl::Seconds(2));
  EXPECT_TRUE(silent.closed());
  regular.Send(Get("/ok"));
  EXPECT_THAT(regular.Receive(), EndsWith("\r\n\r\nok"));
}

TEST(HttpServerAbuseTest, DoesNotGrowWithWhatItIsSent) {
  const std::unique_ptr<HttpServer> server = Serve();
  const std::string large =
      "GET /ok HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(1 << 20, 'a') + "\r\n\r\n";
  const auto abuse = [&] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_THAT(Exchange(*server, large), StartsWith("HTTP/1.1 431 "));
      EXPECT_THAT(Exchange(*server, Get("/ok")), EndsWith("ok"));
    }
  };
  abuse();
  const int64_t before = kipt::testing::MemoryOf(getpid()).resident_kib;
  abuse();
  EXPECT_LE(kipt::testing::MemoryOf(getpid()).resident_kib, before + 256) << "100 MiB were sent";
}

}  // namespace
}  // namespace kipt::agent
