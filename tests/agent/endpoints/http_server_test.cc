// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/http_server.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/config/value_texts.h"
#include "agent/endpoints/endpoints.h"
#include "tests/agent/endpoints/raw_http_client.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/process_cost.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

TEST(HttpAddressTest, ReportsThePortThatItWasGiven) {
  for (const char* host : {"127.0.0.1:", "[::1]:", "0.0.0.0:", "[::]:"}) {
    const auto server = HttpServer::Bind(absl::StrCat(host, 0));
    ASSERT_THAT(server, IsOk()) << host;
    EXPECT_THAT((*server)->address(), AllOf(StartsWith(host), Not(EndsWith(":0"))));
  }
}

TEST(HttpAddressTest, ReportsWhyAnAddressCannotBeUsed) {
  const auto first = HttpServer::Bind("127.0.0.1:0");
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(HttpServer::Bind((*first)->address()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr((*first)->address())));
  EXPECT_THAT(HttpServer::Bind("192.0.2.1:10270"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("of this machine")));
  EXPECT_THAT(HttpServer::Bind("localhost:10270"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(HttpAddressTest, AdoptsOnlyATcpSocketThatListens) {
  const int listening = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(listen(listening, 1), 0);
  const auto adopted = HttpServer::Adopt(OwnedFd(listening));
  ASSERT_THAT(adopted, IsOk());
  EXPECT_THAT((*adopted)->address(), StartsWith("[::]:"));
  EXPECT_NE(fcntl(listening, F_GETFL) & O_NONBLOCK, 0);
  for (const int fd :
       {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
        socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
        socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), open("/dev/null", O_RDONLY | O_CLOEXEC)}) {
    EXPECT_THAT(HttpServer::Adopt(OwnedFd(fd)), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(HttpAddressTest, CanBeBoundAnewWhileOldConnectionsLinger) {
  std::unique_ptr<HttpServer> server = Serve();
  const std::string address = server->address();
  RawHttpClient client(*server);
  client.Send("GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.ReceiveUntil("\r\n\r\nok"), EndsWith("ok"));
  server.reset();
  EXPECT_THAT(HttpServer::Bind(address), IsOk());
}

std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(HttpServerTest, AnswersPipelinedRequestsInTheirOrder) {
  const std::unique_ptr<HttpServer> server = Serve();
  const std::string one = "GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string reply =
      Exchange(*server, one + "GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n" + Get("/ok?verbose"));
  const size_t first = reply.find("\r\n\r\nok");
  const size_t second = reply.find("\r\n\r\nnone");
  ASSERT_NE(first, std::string::npos) << reply;
  ASSERT_NE(second, std::string::npos) << reply;
  EXPECT_LT(first, second);
  EXPECT_THAT(reply, EndsWith("\r\n\r\nok, verbosely"));
}

TEST(HttpServerTest, SendsALargeBodyWhole) {
  const std::string body(200'000, 'x');
  const auto server = Serve([&body](const HttpRequest&) -> HttpReply { return {.body = body}; });
  const std::string reply = Exchange(*server, Get("/large"));
  EXPECT_THAT(reply, HasSubstr("Content-Length: 200000\r\n"));
  EXPECT_THAT(reply, EndsWith("\r\n\r\n" + body));
}

TEST(HttpServerTest, AskedByManyAtOnce) {
  std::atomic<int> answered = 0;
  const std::unique_ptr<HttpServer> server = Serve([&answered](const HttpRequest&) -> HttpReply {
    ++answered;
    return {.body = "ok"};
  });
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&server, t] {
      for (int i = 0; i < 50; ++i) {
        RawHttpClient client(*server, INADDR_LOOPBACK + t);
        client.Send(Get("/ok"));
        EXPECT_THAT(client.Receive(), EndsWith("\r\n\r\nok"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, 400);
}

struct ExchangeRow {
  std::string name;
  std::string request;
  std::string body;  // and ends with it
  // The reply begins with it; empty where any or none will do.
  std::string status = "HTTP/1.1 200 ";
};

const ExchangeRow kExchanges[] = {
    {"Get", Get("/ok"), "\r\n\r\nok"},
    {"Http10", "GET /ok HTTP/1.0\r\n\r\n", "\r\n\r\nok"},
    {"UnknownPath", Get("/nothing-here"), "\r\n\r\nnone", "HTTP/1.1 404 "},
    {"Verbose", Get("/ok?verbose"), "\r\n\r\nok, verbosely"},
    {"VerboseWithAValue", Get("/ok?a=b&verbose=1"), "\r\n\r\nok, verbosely"},
    {"Excluded", Get("/ok?exclude=a&b=c&exclude&exclude=d"), "\r\n\r\nok without a without d"},
    {"OtherQuery", Get("/ok?verbosely&x"), "\r\n\r\nok"},
    {"EscapedNul", Get("/ok%00"), "\r\n\r\nnone", "HTTP/1.1 404 "},
    {"Head", "HEAD /ok HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "\r\n\r\n"},
    {"Post", "POST /ok HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
     "only GET and HEAD\n", "HTTP/1.1 405 "},
    {"Connect", "CONNECT x:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", "only GET and HEAD\n",
     "HTTP/1.1 405 "},
    {"GetWithABody", "GET /ok HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
     "no body is read\n", "HTTP/1.1 413 "},
    {"GetWithChunks",
     "GET /ok HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
     "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
     "no body is read\n", "HTTP/1.1 413 "},
    {"NoHost", "GET /ok HTTP/1.1\r\n\r\n", "one Host header is needed\n", "HTTP/1.1 400 "},
    {"TwoHosts", "GET /ok HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
     "one Host header is needed\n", "HTTP/1.1 400 "},
    {"LargeHeader",
     "GET /ok HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(1 << 20, 'a') + "\r\n\r\n", "",
     "HTTP/1.1 431 "},
    {"LargePath", Get("/" + std::string(1 << 20, 'a')), "", "HTTP/1.1 414 "},
    {"ManyArguments", Get("/ok?" + Repeated("a&", 600)), "the query is too long\n",
     "HTTP/1.1 414 "},
    {"ManyMoreArguments", Get("/ok?" + Repeated("&", 5000)), "the query is too long\n",
     "HTTP/1.1 414 "},
    {"LongArgument", Get("/ok?a=" + std::string(2000, 'b')), "the query is too long\n",
     "HTTP/1.1 414 "},
    {"SomeArguments", Get("/ok?" + Repeated("a&", 31) + "verbose"), "\r\n\r\nok, verbosely"},
    {"PostWithManyArguments",
     "POST /ok?" + Repeated("a&", 300) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
     "only GET and HEAD\n", "HTTP/1.1 405 "},
    {"ThrowingHandler", Get("/throw"), "\r\n\r\n", "HTTP/1.1 500 "},
    {"Garbage", std::string("\x16\x03\x01\0\xff\xfe\r\n\r\n", 10), "", ""},
    {"OnlyLineEnds", std::string(4096, '\n'), "", ""},
};
TEST(HttpServerTest, AnswersEachRequestAndKeepsServing) {
  const std::unique_ptr<HttpServer> server = Serve();
  for (const ExchangeRow& row : kExchanges) {
    SCOPED_TRACE(row.name);
    RawHttpClient client(*server);
    client.Send(row.request);
    const std::string reply = client.Receive(absl::Seconds(row.status.empty() ? 1 : 5));
    EXPECT_THAT(reply, StartsWith(row.status));
    EXPECT_THAT(reply, EndsWith(row.body));
    EXPECT_THAT(Exchange(*server, Get("/ok")), EndsWith("\r\n\r\nok"));
  }
}

// DNS rebinding: a web page's own name resolves to 127.0.0.1, and its script sends requests there.
TEST(HttpServerTest, RefusesANameThatIsNotThisMachinesOnLoopback) {
  for (const char* listens_on : {"127.0.0.1:0", "0.0.0.0:0", "[::]:0"}) {
    const auto server = HttpServer::Bind(listens_on);
    ASSERT_THAT(server, IsOk());
    ASSERT_THAT((*server)->Serve(Answer), IsOk());
    const std::string port = (*server)->address().substr((*server)->address().rfind(':') + 1);
    const auto ask = [&](const std::string& host) {
      return Exchange(**server, absl::StrCat("GET /ok HTTP/1.1\r\nHost: ", host,
                                             "\r\nConnection: close\r\n\r\n"));
    };
    for (const char* host :
         {"evil.example", "localhost.evil.example", "evil.example:10270", "127.0.0.1.evil.example",
          "[::1].evil.example", "127.0.0.1evil", "", "localhost@evil", "[evil]", "evil:1:1",
          "xlocalhost", "1", "127.1", "localhost:80:evil.example"}) {
      EXPECT_THAT(ask(host), AllOf(StartsWith("HTTP/1.1 403 "), HasSubstr("Host header")))
          << listens_on << " \"" << host << "\"";
    }
    for (const std::string& host :
         {std::string("127.0.0.1"), "127.0.0.1:" + port, std::string("localhost"),
          "LOCALHOST:" + port, std::string("[::1]"), "[::1]:" + port, std::string("10.1.2.3:80")}) {
      EXPECT_THAT(ask(host), EndsWith("\r\n\r\nok")) << listens_on << " " << host;
    }
  }
}

// Prometheus and probes name the node as they like.
TEST(HttpServerTest, TakesAnyNameOnAnAddressThatOthersReach) {
  std::string own;
  ifaddrs* all = nullptr;
  ASSERT_EQ(getifaddrs(&all), 0);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    BindAddress address;
    std::memcpy(&address.storage, one->ifa_addr, sizeof(sockaddr_in));
    if (!IsLoopback(address)) own = ToString(address);
  }
  freeifaddrs(all);
  ASSERT_NE(own, "") << "this test needs an IPv4 address other than loopback";
  const auto server = HttpServer::Bind(own);
  ASSERT_THAT(server, IsOk());
  ASSERT_THAT((*server)->Serve(Answer), IsOk());
  RawHttpClient client((*server)->address());
  client.Send("GET /ok HTTP/1.1\r\nHost: node1.example:10271\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.Receive(), EndsWith("\r\n\r\nok"));
}

TEST(HttpServerTest, HeadHasTheHeadersOfGet) {
  const std::unique_ptr<HttpServer> server = Serve();
  const std::string head =
      Exchange(*server, "HEAD /ok HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(head, AllOf(HasSubstr("Content-Length: 2\r\n"),
                          HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"),
                          HasSubstr("X-Content-Type-Options: nosniff\r\n"), EndsWith("\r\n\r\n")));
}

TEST(HttpServerTest, ARefusedMethodGetsTheAllowedOnes) {
  EXPECT_THAT(Exchange(*Serve(), "DELETE /ok HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              HasSubstr("Allow: GET, HEAD\r\n"));
}

std::set<int> Threads() {
  std::set<int> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.insert(std::stoi(entry.path().filename()));
  }
  return threads;
}

TEST(HttpServerTest, EveryDescriptorIsClosedOnExec) {
  const std::unique_ptr<HttpServer> server = Serve();
  RawHttpClient client(*server);
  client.Send("GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.ReceiveUntil("\r\n\r\nok"), EndsWith("ok"));
  int seen = 0;
  for (int fd = 3; fd < 256; ++fd) {
    const std::string path = absl::StrCat("/proc/self/fd/", fd);
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(path, error).string();
    // What gtest and ctest hand down are files and pipes.
    if (error ||
        (!absl::StartsWith(target, "socket:") && !absl::StartsWith(target, "anon_inode:"))) {
      continue;
    }
    ++seen;
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << target;
  }
  EXPECT_GE(seen, 5) << "listener, epoll, eventfd, both ends of the connection";
}

TEST(HttpServerTest, EndsWithConnectionsOpen) {
  const std::set<int> before = Threads();
  std::unique_ptr<HttpServer> server = Serve();
  RawHttpClient idle(*server);
  RawHttpClient half(*server);
  half.Send("GET /o");
  RawHttpClient kept(*server);
  kept.Send("GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(kept.ReceiveUntil("\r\n\r\nok"), EndsWith("ok"));
  const absl::Time start = absl::Now();
  server.reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  EXPECT_EQ(Threads(), before);
  for (RawHttpClient* client : {&idle, &half, &kept}) {
    client->Receive();
    EXPECT_TRUE(client->closed());
  }
}

TEST(HttpServerTest, AnswersWhatIsBeingAnsweredBeforeItEnds) {
  std::atomic<bool> entered = false;
  std::unique_ptr<HttpServer> server = Serve([&entered](const HttpRequest&) -> HttpReply {
    entered = true;
    absl::SleepFor(absl::Milliseconds(300));
    return {.body = "after all"};
  });
  RawHttpClient client(*server);
  client.Send(Get("/"));
  while (!entered) absl::SleepFor(absl::Milliseconds(1));
  server.reset();
  EXPECT_THAT(client.Receive(), EndsWith("\r\n\r\nafter all"));
}

TEST(HttpServerAbuseTest, ClosesAConnectionWithAnEndlessRequest) {
  const std::unique_ptr<HttpServer> server = Serve();
  RawHttpClient silent(*server);
  RawHttpClient slow(*server);
  silent.Send("GET /ok HTT");
  slow.Send("GET /");
  EXPECT_THAT(Exchange(*server, Get("/ok")), EndsWith("\r\n\r\nok")) << "others are served";
  const absl::Time start = absl::Now();
  while (!slow.closed() && absl::Now() - start < absl::Seconds(20)) {
    slow.Send("o");
    slow.Receive(absl::Milliseconds(500));
  }
  silent.Receive(absl::Seconds(1));
  EXPECT_TRUE(slow.closed());
  EXPECT_TRUE(silent.closed());
  EXPECT_GT(absl::Now() - start, absl::Seconds(8));
  EXPECT_LT(absl::Now() - start, absl::Seconds(15));
}

TEST(HttpServerAbuseTest, IdleConnectionsDoNotKeepOthersOut) {
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
  EXPECT_GT(open, 16) << "no connection is closed without need";
}

TEST(HttpServerAbuseTest, OnlySilentConnectionsAreClosed) {
  const std::unique_ptr<HttpServer> server = Serve();
  RawHttpClient regular(*server);
  RawHttpClient silent(*server);
  for (int i = 0; i < 3; ++i) {
    // A whole request makes it the last one to be closed, although it came first.
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

// A connection that cannot be accepted stays in the kernel's queue and keeps it readable.
TEST(HttpServerAbuseTest, SleepsUntilThereIsADescriptorAgain) {
  const std::unique_ptr<HttpServer> server = Serve();
  std::vector<OwnedFd> all;
  do all.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  while (all.back().valid());
  all.resize(all.size() - 2);
  RawHttpClient client(*server);
  client.Send(Get("/ok"));
  const std::clock_t processor_time = std::clock();
  EXPECT_EQ(client.Receive(absl::Seconds(1)), "");
  EXPECT_LT(std::clock() - processor_time, CLOCKS_PER_SEC / 4);
  all.clear();
  EXPECT_THAT(client.Receive(), EndsWith("\r\n\r\nok"));
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

TEST(ServedAddressesTest, AServerThatCannotStartIsReportedAndStartedLater) {
  const std::unique_ptr<EventLoop> loop = *EventLoop::Create();
  std::vector<std::string> notices;
  ServedAddresses served(*loop, {{.address = "127.0.0.1:0", .handler = Answer}},
                         {.notice = [&](auto, auto sentence) { notices.emplace_back(sentence); },
                          .changed = [&] { loop->Exit(0); }});
  served.Listen({});
  WithFailingCall(
      {.number = SYS_epoll_create1, .argument = 0, .value = EPOLL_CLOEXEC, .error = EMFILE},
      [&] { served.Serve(); });
  EXPECT_THAT(served.problem(), StartsWith("cannot serve 127.0.0.1:"));
  ASSERT_THAT(loop->Run(), IsOkAndHolds(0));
  EXPECT_EQ(served.problem(), "");
  EXPECT_THAT(notices, ElementsAre(StartsWith("cannot serve 127.0.0.1:"),
                                   StartsWith("Listening on http://127.0.0.1:")));
}

}  // namespace
}  // namespace kipt::agent
