// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/endpoints.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/config/load_config.h"
#include "agent/config/settings.h"
#include "agent/endpoints/metrics.h"
#include "tests/agent/endpoints/metrics_rounds.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent::endpoints_test {
namespace {

using Json = nlohmann::json;

const absl::Time kStart =
    absl::FromCivil(absl::CivilSecond(2026, 1, 31, 23, 59, 58), absl::UTCTimeZone());

// Two clocks that tests set.
struct Time {
  absl::Time now = kStart;
  SteadyTime steady;

  void Pass(absl::Duration time) {
    now += time;
    steady += time;
  }
};

DaemonState Fine() {
  DaemonState state;
  state.started = kStart;
  state.heartbeat = kStart;
  state.emulated_version = {1, 27};
  state.mode = Mode::kCleanup;
  state.iptables_mode = "nft";
  state.watching = "kernel events";
  for (const Family family : netlink::kFamilies) {
    state.families.push_back({.family = family, .phase = FamilyPhase::kInPlace, .since = kStart});
  }
  return state;
}
void Fail(FamilyState& family) {
  family.phase = FamilyPhase::kFailed;
  family.reason = "not\npermitted";
}
void Degrade(FamilyState& family) {
  family.phase = FamilyPhase::kDegraded;
  family.reason = "a fight";
}

class EndpointsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Endpoints> Make(DaemonState state) {
    Endpoints::Setup setup{
        .version = "0.1.0", .flags = {}, .config = MakeConfig("1.27"), .metrics = [] {
          return std::string("some_metric 1\n");
        }};
    setup.now = [this] {
      at_now_();
      return time_.now;
    };
    setup.steady_now = [this] { return time_.steady; };
    setup.conntrack = [this] { return conntrack_; };
    return std::make_unique<Endpoints>(std::move(setup), std::move(state));
  }

  // What /proc reports; empty without connection tracking.
  std::optional<ConntrackCounters> conntrack_;

  Time time_;
  // Called while /statusz is formatted.
  std::function<void()> at_now_ = [] {};
};

struct HealthRow {
  std::string name;
  HttpRequest request;
  std::string body;
  int status = 200;
  std::function<void(DaemonState&)> change = [](DaemonState&) {};
  absl::Duration silence = absl::Seconds(1);
};

const HealthRow kHealthRows[] = {
    {.name = "livez", .request = {"/livez"}, .body = "ok", .silence = absl::Seconds(180)},
    {"healthz", HttpRequest{"/healthz"}, "ok"},
    {"livez, verbosely", HttpRequest{"/livez", true}, "[+]loop ok\nlivez check passed\n"},
    {.name = "livez of a loop that hangs",
     .request = {"/livez"},
     .body = "[-]loop failed: the event loop has not run for 181 s\nlivez check failed\n",
     .status = 500,
     .silence = absl::Seconds(181)},
    {"readyz", HttpRequest{"/readyz"}, "ok"},
    {"readyz, verbosely", HttpRequest{"/readyz", true},
     "[+]loop ok\n[+]config ok\n[+]ip ok\n[+]ip6 ok\n[+]martians ok\nreadyz check passed\n"},
    {"readyz of a failed family lists the checks unasked", HttpRequest{"/readyz"},
     "[+]loop ok\n[+]config ok\n[+]ip ok\n"
     "[-]ip6 failed: since 2026-01-31T23:59:58Z, not\\npermitted\n[+]martians ok\nreadyz check "
     "failed\n",
     503, [](DaemonState& state) { Fail(state.families[1]); }},
    {"readyz before the first attempt has ended", HttpRequest{"/readyz"},
     "[+]loop ok\n[+]config ok\n"
     "[-]ip failed: since never, the first attempt has not ended yet\n"
     "[+]ip6 ok\n[+]martians ok\nreadyz check failed\n",
     503, [](DaemonState& state) { state.families[0] = {.family = Family::kIPv4}; }},
    {"readyz of what is no reason not to be ready", HttpRequest{"/readyz", true},
     "[+]loop ok\n[+]config ok: not reloaded: line 3\n"
     "[+]ip ok: degraded since 2026-01-31T23:59:58Z, a fight\n[+]ip6 ok\n[+]martians ok\n"
     "[+]listening ok: 127.0.0.1:10271 is in use\nreadyz check passed\n",
     200,
     [](DaemonState& state) {
       Degrade(state.families[0]);
       state.config_problem = "line 3";
       state.listen_problem = "127.0.0.1:10271 is in use";
     }},
    {.name = "readyz of a loop that hangs",
     .request = {"/readyz"},
     .body = "[-]loop failed: the event loop has not run for 240 s\n[+]config ok\n[+]ip ok\n[+]ip6 "
             "ok\n[+]martians ok\nreadyz check failed\n",
     .status = 503,
     .silence = absl::Minutes(4)},
    {"readyz of a node that neighbours can reach 127.0.0.1 of", HttpRequest{"/readyz"},
     "[+]loop ok\n[+]config ok\n[+]ip ok\n[+]ip6 ok\n[-]martians failed: route_localnet is 1 for "
     "eth0, eth1 and no rule keeps neighbours from 127.0.0.1 (CVE-2020-8558)\nreadyz check "
     "failed\n",
     503,
     [](DaemonState& state) {
       state.route_localnet.interfaces = {"eth0", "eth1"};
     }},
    {"readyz before any family is known", HttpRequest{"/readyz"},
     "[+]loop ok\n[+]config ok\n[+]martians ok\n[-]families failed: none is known\n"
     "readyz check failed\n",
     503, [](DaemonState& state) { state.families.clear(); }},
    {"one check", HttpRequest{"/readyz/ip"}, "ok"},
    {"one check that fails", HttpRequest{"/readyz/config"},
     "[-]config failed: must restart: --netns\nreadyz check failed\n", 503,
     [](DaemonState& state) { state.must_restart = "--netns"; }},
    {"readyz without the check that fails",
     {.path = "/readyz", .excluded = {"config", "ip"}},
     "ok",
     200,
     [](DaemonState& state) { state.must_restart = "--netns"; }},
    {.name = "what is excluded, verbosely",
     .request = {.path = "/healthz", .verbose = true, .excluded = {"loop", "no\"ne"}},
     .body = "[+]loop excluded: ok\nwarn: some health checks cannot be excluded: no matches for "
             "\"no\\\"ne\"\nhealthz check passed\n",
     .silence = absl::Seconds(181)},
};

TEST_F(EndpointsTest, ReportsHealth) {
  for (const HealthRow& row : kHealthRows) {
    SCOPED_TRACE(row.name);
    time_ = Time();
    DaemonState state = Fine();
    row.change(state);
    const std::unique_ptr<Endpoints> endpoints = Make(state);
    time_.Pass(row.silence);
    const HttpReply reply = endpoints->Health(row.request);
    EXPECT_EQ(reply.status, row.status);
    EXPECT_EQ(reply.body, row.body);
    EXPECT_EQ(reply.content_type, "text/plain; charset=utf-8");
    time_ = Time();
    EXPECT_EQ(Make(state)->Health({"/readyz"}).status == 200, IsReady(state));
  }
  EXPECT_EQ(Make(DaemonState())->Health({"/livez"}).status, 500) << "it has not run yet";
}

TEST_F(EndpointsTest, SettingTheClockDoesNotMakeTheLoopHang) {
  const std::unique_ptr<Endpoints> endpoints = Make(Fine());
  time_.now += absl::Hours(1);
  EXPECT_EQ(endpoints->Health({"/livez"}).status, 200);
  endpoints->Publish(Fine());
  EXPECT_EQ(endpoints->Health({"/livez"}).status, 200) << "published between two turns";
  time_.now -= absl::Hours(2);
  time_.steady += absl::Minutes(4);
  EXPECT_EQ(endpoints->Health({"/livez"}).status, 500);
}

TEST_F(EndpointsTest, AHeartbeatThatWasOldWhenPublishedIsOld) {
  const std::unique_ptr<Endpoints> endpoints = Make(Fine());
  time_.Pass(absl::Minutes(5));
  endpoints->Publish(Fine());
  EXPECT_EQ(endpoints->Health({"/livez"}).status, 500);
  DaemonState state = Fine();
  state.heartbeat = time_.now;
  endpoints->Publish(state);
  EXPECT_EQ(endpoints->Health({"/livez"}).status, 200);
  state.heartbeat = absl::InfinitePast();
  endpoints->Publish(state);
  EXPECT_THAT(endpoints->Health({"/livez"}).body, HasSubstr("has not run yet"));
}

// The time of day was set back after the loop had turned.
TEST_F(EndpointsTest, AHeartbeatInTheFutureHidesNoDeadLoop) {
  const std::unique_ptr<Endpoints> endpoints = Make(Fine());
  DaemonState state = Fine();
  state.heartbeat = time_.now + absl::Hours(1);
  endpoints->Publish(state);
  time_.Pass(absl::Seconds(180));
  EXPECT_EQ(endpoints->Health({"/livez"}).status, 200);
  time_.Pass(absl::Seconds(1));
  EXPECT_EQ(endpoints->Health({"/livez"}).status, 500);
  EXPECT_EQ(endpoints->Health({"/readyz"}).status, 503);
  state.heartbeat = time_.now;
  endpoints->Publish(state);
  EXPECT_EQ(endpoints->Health({"/livez"}).status, 200);
}

TEST_F(EndpointsTest, EachAddressHasItsOwnPaths) {
  const std::unique_ptr<Endpoints> endpoints = Make(Fine());
  for (const char* path : {"/metrics", "/statusz", "/auditz", "/flagz", "/configz"}) {
    EXPECT_EQ(endpoints->Inspect({path}).status, 200) << path;
    EXPECT_EQ(endpoints->Health({path}).status, 404) << path;
  }
  for (const char* path : {"/healthz", "/livez", "/readyz"}) {
    EXPECT_EQ(endpoints->Health({path}).status, 200) << path;
    EXPECT_EQ(endpoints->Inspect({path}).status, 404) << path;
  }
}

TEST_F(EndpointsTest, AnUnknownPathIsNotEchoed) {
  const std::unique_ptr<Endpoints> endpoints = Make(Fine());
  for (const char* path :
       {"", "/x<script>", "/readyz/no", "/readyz/ip/", "/readyz/", "/metrics/", "//", "*"}) {
    for (const HttpReply& reply : {endpoints->Health({path}), endpoints->Inspect({path})}) {
      EXPECT_EQ(reply.status, 404) << path;
      EXPECT_EQ(reply.body, "no such path; / lists the paths\n");
    }
  }
}

TEST_F(EndpointsTest, TheIndexListsThePathsOfBothAddresses) {
  const std::unique_ptr<Endpoints> endpoints = Make(Fine());
  const std::string body = endpoints->Health({"/"}).body;
  EXPECT_EQ(endpoints->Inspect({"/"}).body, body);
  EXPECT_EQ(
      body,
      "health (127.0.0.1:10270):\n  /healthz\n  /livez\n  /readyz\n"
      "metrics (127.0.0.1:10271):\n  /auditz\n  /configz\n  /flagz\n  /metrics\n  /statusz\n");
}

TEST_F(EndpointsTest, MetricsHaveTheirContentType) {
  const HttpReply reply = Make(Fine())->Inspect({"/metrics"});
  EXPECT_EQ(reply.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(reply.body, "some_metric 1\n");
}

TEST_F(EndpointsTest, ConfigzIsAConfigurationFileThatGivesTheSame) {
  const std::unique_ptr<Endpoints> endpoints = Make(Fine());
  for (const char* version : {"1.24", "1.25", "1.27", "1.29", "1.34", "1.37"}) {
    SCOPED_TRACE(version);
    const Config config = MakeConfig(version);
    endpoints->SetConfig(config);
    const HttpReply reply = endpoints->Inspect({"/configz"});
    EXPECT_EQ(reply.content_type, "application/json");
    const Json json = Json::parse(reply.body);
    ASSERT_EQ(json.size(), 1U);
    const absl::StatusOr<ConfigFile> file =
        ParseConfigFile("configz", json.at("kube-iptables-agent").dump());
    ASSERT_THAT(file, IsOk());
    EXPECT_EQ(file->kind, ConfigFile::Kind::kAgent);
    EXPECT_EQ(file->given.emulated_version, version);
    EXPECT_EQ(file->given.iptables_masquerade_bit, 14);
    EXPECT_EQ(file->given.ip_families, "ipv4");
    EXPECT_EQ(file->given.iptables_mode, "auto");
    EXPECT_EQ(file->given.iptables_sync_period, absl::Minutes(1));
    EXPECT_EQ(file->given.watch, "events");
    EXPECT_EQ(file->given.healthz_bind_address, "127.0.0.1:10270");
    EXPECT_EQ(file->given.metrics_bind_address, "127.0.0.1:10271");
    for (const featuregates::GateState& gate : config.gates.States()) {
      EXPECT_EQ(file->feature_gates.at(gate.name), gate.enabled) << gate.name;
    }
  }
}

constexpr absl::string_view kBusy = R"(Started: 2026-01-31T23:59:58Z
Up: 27 hr 03 min 04 sec
Version: 0.1.0
Emulated version: 1.27
Mode: cleanup
iptables mode: nft
Watching: kernel events
Ready: no
Last check: never
Last success: never
Checks: 0
Martian packets: EXPOSED: route_localnet is 1 for eth0 and no rule keeps neighbours from 127.0.0.1 (CVE-2020-8558)
Configuration: as on disk
Must restart: --netns

Families:
  ip: degraded since 2026-01-31T23:59:58Z, a fight
  ip6: failed since 2026-01-31T23:59:58Z, not\npermitted

Findings: 1
  [critical] ShadowedJump in ip filter INPUT: below\n-j DROP

Fights: 1
  ip filter INPUT: -A INPUT -j KUBE-FIREWALL undone 12 times since 2026-01-31T23:59:58Z, next repair after 400ms; by nft (PID 42)

Stale, and kept: 1 (kube-iptables-agent status lists them)
  ip filter KUBE-X: :KUBE-X: jumped to by ip filter Y

kube-proxy's, and not stale: 1 (kube-iptables-agent status lists them)

Connection tracking: 240000 of 262144 entries
  then: 192.0.2.1

Unexpected rules of other programs: not reported

Incidents: 7
  what happened last
)";

TEST_F(EndpointsTest, StatuszShowsTheCurrentState) {
  DaemonState state = Fine();
  Degrade(state.families[0]);
  Fail(state.families[1]);
  state.must_restart = "--netns";
  state.route_localnet.interfaces = {"eth0"};
  state.findings = {{Condition::kShadowedJump, Filter("INPUT"), "below\n-j DROP", false}};
  // Any local user may ask, and sees no arguments of others' programs.
  const Writer nft = {.pid = 42, .command = "nft", .command_line = "nft --token=secret"};
  state.fights = {{.chain = Filter("INPUT"),
                   .item = "-A INPUT -j KUBE-FIREWALL",
                   .rounds = 12,
                   .since = kStart,
                   .wait = absl::Milliseconds(400),
                   .by = {.writers = {nft}, .others = false}}};
  state.stale = {{Filter("KUBE-X"), ":KUBE-X", "why"}};
  state.claimed = {{state.stale[0], {{ClaimKind::kForeignJump, "jumped to by ip filter Y"}}}};
  state.of_kube_proxy = state.stale;
  conntrack_ = ConntrackCounters{.entries = 240000, .limit = 262144};
  state.conntrack_report = "then: 192.0.2.1";
  state.incidents = 7;
  state.recent.incidents = {"what happened last"};
  const std::unique_ptr<Endpoints> endpoints = Make(state);
  time_.Pass(absl::Hours(27) + absl::Minutes(3) + absl::Seconds(4));
  EXPECT_THAT(endpoints->Inspect({"/statusz"}).body, EndsWith(absl::StrCat("\n\n", kBusy)));
}

TEST_F(EndpointsTest, StatuszIsShortWhereNothingIsWrong) {
  EXPECT_EQ(
      Make(Fine())->Inspect({"/statusz"}).body,
      "kube-iptables-agent statusz\nFor people who search for a fault. Not for programs: any "
      "release may change it.\n\nStarted: 2026-01-31T23:59:58Z\nUp: 0 hr 00 min 00 sec\nVersion: "
      "0.1.0\nEmulated version: 1.27\nMode: cleanup\niptables mode: nft\nWatching: kernel "
      "events\nReady: yes\nLast check: never\nLast success: never\nChecks: 0\nMartian packets: no "
      "rule, none is needed, 0 dropped since the start\nConfiguration: as on disk\n\nFamilies:\n  "
      "ip: in place since 2026-01-31T23:59:58Z\n  ip6: in place since "
      "2026-01-31T23:59:58Z\n\nFindings: 0\n\nFights: 0\n\nStale, and kept: 0\n\nUnexpected rules "
      "of other programs: not reported\n\nIncidents: 0\n");
}

TEST_F(EndpointsTest, TheLoopNeedNotWaitWhileStatuszIsFormatted) {
  const std::unique_ptr<Endpoints> endpoints = Make(Fine());
  std::thread loop;
  std::promise<void> published;
  std::future_status seen = std::future_status::deferred;
  std::atomic<bool> begun = false;
  at_now_ = [&] {
    if (begun.exchange(true)) return;
    loop = std::thread([&] {
      endpoints->Publish(Fine());
      published.set_value();
    });
    seen = published.get_future().wait_for(std::chrono::seconds(5));
  };
  endpoints->Inspect({"/statusz"});
  loop.join();
  EXPECT_EQ(seen, std::future_status::ready);
}

TEST_F(EndpointsTest, StatuszCountsMartiansAndNoTimeBeforeTheStart) {
  DaemonState state = Fine();
  state.started += absl::Hours(1);
  state.martian_protection = true;
  state.martians_dropped = 7;
  state.route_localnet.interfaces = {"eth0", "eth1"};
  EXPECT_THAT(Make(state)->Inspect({"/statusz"}).body,
              AllOf(HasSubstr("\nUp: 0 hr 00 min 00 sec\n"),
                    HasSubstr("\nMartian packets: a rule drops them, 7 dropped since the start, "
                              "route_localnet is 1 for eth0, eth1\n")));
}

std::string FlagzText(const Flags& flags) {
  const Endpoints endpoints({.flags = flags, .config = MakeConfig("1.27")}, DaemonState());
  return endpoints.Inspect({.path = "/flagz"}).body;
}

TEST(FlagzTest, ShowsWhatWasGivenElseTheDefault) {
  Flags flags;
  flags.feature_gates = {"A=true", "B=false\n"};
  flags.iptables_drop_bit = 3;
  flags.make_iptables_util_chains = false;
  const std::string text = FlagzText(flags);
  for (const char* line : {"\nfeature-gates=A=true,B=false\\n\n", "\niptables-drop-bit=3\n",
                           "\niptables-masquerade-bit=14\n", "\niptables-masquerade-label=114\n",
                           "\niptables-drop-label=115\n", "\nmake-iptables-util-chains=false\n",
                           "\nemulated-version=1.27\n", "\nip-families=auto\n", "\nv=0\n",
                           "\noutput=text\n", "\nconfig=/etc/kube-iptables-agent/config.yaml\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// The help has the defaults as text, so both must agree.
TEST(FlagzTest, ItsDefaultsAreThoseOfTheHelp) {
  const std::string text = FlagzText({});
  for (const Setting& row : kSettings) {
    const std::string help = HelpWithDefault(row);
    const size_t from = help.rfind("(default ");
    if (from == std::string::npos) continue;
    absl::string_view value = absl::string_view(help).substr(from + 9);
    value = value.substr(0, value.find_first_of(",)"));
    // A default that words describe ("the current one") is an empty value.
    const bool described = value == "/ outside containers" || value == "the current one" ||
                           absl::StartsWith(value, "/etc/cni/net.d and");
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", row.flag, "=", described ? "" : value, "\n")));
  }
}

}  // namespace
}  // namespace kipt::agent::endpoints_test
