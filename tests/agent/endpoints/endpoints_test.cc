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
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/config/load_config.h"
#include "agent/config/settings.h"
#include "agent/endpoints/metrics.h"
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

Config MakeConfig(const std::string& emulated = "1.27") {
  Flags flags;
  flags.emulated_version = emulated;
  flags.ip_families = "ipv4";
  absl::StatusOr<Config> config =
      LoadConfig(flags, {.default_config_path = "/nonexistent/config.yaml"});
  EXPECT_THAT(config, IsOk());
  return *std::move(config);
}

DaemonState MakeState(FamilyState ipv4, FamilyState ipv6) {
  DaemonState state;
  state.started = kStart;
  state.heartbeat = kStart;
  state.emulated_version = {1, 27};
  state.mode = Mode::kCleanup;
  state.iptables_mode = "nft";
  state.watching = "kernel events";
  state.families = {std::move(ipv4), std::move(ipv6)};
  return state;
}

FamilyState InPlace(Family family) {
  return {.family = family, .phase = FamilyPhase::kInPlace, .since = kStart};
}
FamilyState Failed(Family family) {
  return {
      .family = family, .phase = FamilyPhase::kFailed, .since = kStart, .reason = "not\npermitted"};
}
FamilyState Degraded(Family family) {
  return {.family = family, .phase = FamilyPhase::kDegraded, .since = kStart, .reason = "a fight"};
}

DaemonState Fine() { return MakeState(InPlace(Family::kIPv4), InPlace(Family::kIPv6)); }

class EndpointsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Endpoints> Make(DaemonState state) {
    Endpoints::Setup setup{.version = "0.1.0", .flags = {}, .config = MakeConfig(), .metrics = [] {
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

  // What /proc tells; nothing where nothing is tracked.
  std::optional<ConntrackCounters> conntrack_;

  Time time_;
  // Called while /statusz is formatted.
  std::function<void()> at_now_ = [] {};
};

// ---- health ----

struct HealthRow {
  std::string name;
  HttpRequest request;
  std::string body;
  DaemonState state = Fine();
  int status = 200;
  absl::Duration silence = absl::Seconds(1);
};

DaemonState WithConfigProblem() {
  DaemonState state = Fine();
  state.config_problem = "line 3";
  return state;
}
DaemonState WithRestart() {
  DaemonState state = Fine();
  state.must_restart = "--netns";
  return state;
}

DaemonState Exposed() {
  DaemonState state = Fine();
  state.route_localnet.interfaces = {"eth0", "eth1"};
  return state;
}
DaemonState WithListenProblem() {
  DaemonState state = Fine();
  state.listen_problem = "127.0.0.1:10271 is in use";
  return state;
}
DaemonState WithoutFamilies() {
  DaemonState state = Fine();
  state.families.clear();
  return state;
}

const HealthRow kHealthRows[] = {
    {"livez", HttpRequest{"/livez"}, "ok", Fine(), 200, absl::Seconds(180)},
    {"healthz", HttpRequest{"/healthz"}, "ok"},
    {"livez, verbosely", HttpRequest{"/livez", true}, "[+]loop ok\nlivez check passed\n"},
    {"livez of a loop that hangs", HttpRequest{"/livez"},
     "[-]loop failed: the event loop has not run for 181 s\nlivez check failed\n", Fine(), 500,
     absl::Seconds(181)},
    {"readyz", HttpRequest{"/readyz"}, "ok"},
    {"readyz, verbosely", HttpRequest{"/readyz", true},
     "[+]loop ok\n[+]config ok\n[+]ip ok\n[+]ip6 ok\n[+]martians ok\nreadyz check passed\n"},
    {"readyz of a failed family lists the checks unasked", HttpRequest{"/readyz"},
     "[+]loop ok\n[+]config ok\n[+]ip ok\n"
     "[-]ip6 failed: since 2026-01-31T23:59:58Z, not\\npermitted\n[+]martians ok\nreadyz check "
     "failed\n",
     MakeState(InPlace(Family::kIPv4), Failed(Family::kIPv6)), 503},
    {"readyz before the first attempt has ended", HttpRequest{"/readyz"},
     "[+]loop ok\n[+]config ok\n"
     "[-]ip failed: since never, the first attempt has not ended yet\n"
     "[+]ip6 ok\n[+]martians ok\nreadyz check failed\n",
     MakeState({.family = Family::kIPv4}, InPlace(Family::kIPv6)), 503},
    {"readyz of a degraded family that is ready", HttpRequest{"/readyz", true},
     "[+]loop ok\n[+]config ok\n[+]ip ok: degraded since 2026-01-31T23:59:58Z, a fight\n"
     "[+]ip6 ok\n[+]martians ok\nreadyz check passed\n",
     MakeState(Degraded(Family::kIPv4), InPlace(Family::kIPv6))},
    {"readyz of a loop that hangs", HttpRequest{"/readyz"},
     "[-]loop failed: the event loop has not run for 240 s\n[+]config ok\n[+]ip ok\n[+]ip6 "
     "ok\n[+]martians ok\nreadyz check failed\n",
     Fine(), 503, absl::Minutes(4)},
    {"readyz with a configuration that was refused", HttpRequest{"/readyz", true},
     "[+]loop ok\n[+]config ok: not reloaded: line 3\n[+]ip ok\n[+]ip6 ok\n"
     "[+]martians ok\nreadyz check passed\n",
     WithConfigProblem()},
    {"readyz of a node that neighbours can reach 127.0.0.1 of", HttpRequest{"/readyz"},
     "[+]loop ok\n[+]config ok\n[+]ip ok\n[+]ip6 ok\n[-]martians failed: route_localnet is 1 for "
     "eth0, eth1 and no rule keeps neighbours from 127.0.0.1 (CVE-2020-8558)\nreadyz check "
     "failed\n",
     Exposed(), 503},
    {"readyz with an address that cannot be listened at", HttpRequest{"/readyz", true},
     "[+]loop ok\n[+]config ok\n[+]ip ok\n[+]ip6 ok\n[+]martians ok\n"
     "[+]listening ok: 127.0.0.1:10271 is in use\nreadyz check passed\n",
     WithListenProblem()},
    {"readyz before any family is known", HttpRequest{"/readyz"},
     "[+]loop ok\n[+]config ok\n[+]martians ok\n[-]families failed: none is known\n"
     "readyz check failed\n",
     WithoutFamilies(), 503},
    {"one check", HttpRequest{"/readyz/ip"}, "ok"},
    {"one check that fails", HttpRequest{"/readyz/config"},
     "[-]config failed: must restart: --netns\nreadyz check failed\n", WithRestart(), 503},
    {"readyz without the check that fails",
     HttpRequest{.path = "/readyz", .excluded = {"config", "ip"}}, "ok", WithRestart()},
    {"what is excluded, verbosely",
     HttpRequest{.path = "/healthz", .verbose = true, .excluded = {"loop", "no\"ne"}},
     "[+]loop excluded: ok\nwarn: some health checks cannot be excluded: no matches for "
     "\"no\\\"ne\"\nhealthz check passed\n",
     Fine(), 200, absl::Seconds(181)},
};

TEST_F(EndpointsTest, TellsHealth) {
  for (const HealthRow& row : kHealthRows) {
    SCOPED_TRACE(row.name);
    time_ = Time();
    const std::unique_ptr<Endpoints> endpoints = Make(row.state);
    time_.Pass(row.silence);
    const HttpReply reply = endpoints->Health(row.request);
    EXPECT_EQ(reply.status, row.status);
    EXPECT_EQ(reply.body, row.body);
    EXPECT_EQ(reply.content_type, "text/plain; charset=utf-8");
  }
}

TEST_F(EndpointsTest, SettingTheClockDoesNotMakeTheLoopHang) {
  const std::unique_ptr<Endpoints> endpoints = Make(Fine());
  time_.now += absl::Hours(1);
  EXPECT_EQ(endpoints->Health({"/livez"}).status, 200);
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
  endpoints->Publish(state);
  EXPECT_EQ(endpoints->Health({"/livez"}).status, 200);
}

TEST_F(EndpointsTest, IsReadyExactlyWhereTheStateIs) {
  for (const HealthRow& row : kHealthRows) {
    time_ = Time();
    EXPECT_EQ(Make(row.state)->Health({"/readyz"}).status == 200, IsReady(row.state)) << row.name;
  }
  EXPECT_EQ(Make(DaemonState())->Health({"/readyz"}).status, 503);
}

// ---- paths ----

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

// ---- configz ----

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

// ---- statusz ----

TEST_F(EndpointsTest, StatuszTellsWhatGoesOn) {
  DaemonState state = MakeState(Degraded(Family::kIPv4), Failed(Family::kIPv6));
  state.findings = {{Condition::kShadowedJump, Filter("INPUT"), "below\n-j DROP", false}};
  state.fights = {{.chain = Filter("INPUT"),
                   .item = "-A INPUT -j KUBE-FIREWALL",
                   .rounds = 12,
                   .since = kStart,
                   .wait = absl::Milliseconds(400),
                   .by = {.writers = {Writer{
                              .pid = 42, .command = "nft", .command_line = "nft --token=secret"}},
                          .others = false}}};
  state.stale = {{Filter("KUBE-FIREWALL", Family::kIPv6), ":KUBE-FIREWALL", "why"}};
  state.of_kube_proxy = state.stale;
  state.incidents = 7;
  state.recent.incidents = {"what happened last"};
  const std::unique_ptr<Endpoints> endpoints = Make(state);
  time_.Pass(absl::Hours(27) + absl::Minutes(3) + absl::Seconds(4));
  const std::string body = endpoints->Inspect({"/statusz"}).body;
  EXPECT_THAT(body, StartsWith("kube-iptables-agent statusz\n"));
  const std::vector<std::string> lines = absl::StrSplit(body, '\n');
  for (const char* line :
       {"Started: 2026-01-31T23:59:58Z", "Up: 27 hr 03 min 04 sec", "Version: 0.1.0",
        "Emulated version: 1.27", "Mode: cleanup", "iptables mode: nft", "Watching: kernel events",
        "Ready: no", "Last success: never", "Configuration: as on disk",
        "  ip: degraded since 2026-01-31T23:59:58Z, a fight",
        "  ip6: failed since 2026-01-31T23:59:58Z, not\\npermitted", "Findings: 1",
        "  [critical] ShadowedJump in ip filter INPUT: below\\n-j DROP", "Fights: 1",
        "Stale, and kept: 1 (kube-iptables-agent status lists them)",
        "kube-proxy's, and not stale: 1 (kube-iptables-agent status lists them)", "Incidents: 7",
        "  what happened last"}) {
    EXPECT_THAT(lines, Contains(line));
  }
  EXPECT_THAT(body, HasSubstr("  ip filter INPUT: -A INPUT -j KUBE-FIREWALL undone 12 times since "
                              "2026-01-31T23:59:58Z, next repair after 400ms; by nft"));
  EXPECT_THAT(body, Not(HasSubstr("secret"))) << "any local user may ask";
}

TEST_F(EndpointsTest, StatuszTellsHowFullConnectionTrackingIsAndWhoFilledIt) {
  conntrack_ = ConntrackCounters{.entries = 240000, .limit = 262144};
  DaemonState state = Fine();
  EXPECT_THAT(Make(state)->Inspect({"/statusz"}).body,
              HasSubstr("\nConnection tracking: 240000 of 262144 entries\n\nUnexpected"));
  state.conntrack_report = "then: 192.0.2.1";
  EXPECT_THAT(
      Make(state)->Inspect({"/statusz"}).body,
      HasSubstr("\nConnection tracking: 240000 of 262144 entries\n  then: 192.0.2.1\n\nUnex"));
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

TEST_F(EndpointsTest, StatuszSaysWhatIsKnownOfEachPart) {
  struct Row {
    std::string name;
    std::function<void(DaemonState&)> change;
    std::string line;
  };
  for (const Row& row : std::vector<Row>{
           {"an hour", [](DaemonState& state) { state.started -= absl::Hours(1); },
            "Up: 1 hr 00 min 00 sec"},
           {"a clock that was set back",
            [](DaemonState& state) { state.started += absl::Hours(1); }, "Up: 0 hr 00 min 00 sec"},
           {"martian packets that are dropped",
            [](DaemonState& state) {
              state.martian_protection = true;
              state.martians_dropped = 7;
              state.route_localnet.interfaces = {"eth0", "eth1"};
            },
            "Martian packets: a rule drops them, 7 dropped since the start, route_localnet is 1 "
            "for eth0, eth1"},
           {"martian packets that pass", [](DaemonState& state) { state = Exposed(); },
            "Martian packets: EXPOSED: route_localnet is 1 for eth0, eth1 and no rule keeps "
            "neighbours from 127.0.0.1 (CVE-2020-8558)"},
           {"a restart", [](DaemonState& state) { state = WithRestart(); },
            "Must restart: --netns"},
           {"a claimed chain",
            [](DaemonState& state) {
              state.claimed = {{{Filter("KUBE-X"), ":KUBE-X", "why"},
                                {{ClaimKind::kForeignJump, "jumped to by ip filter Y"}}}};
            },
            "  ip filter KUBE-X: :KUBE-X: jumped to by ip filter Y"}}) {
    SCOPED_TRACE(row.name);
    DaemonState state = Fine();
    row.change(state);
    const std::string text = Make(state)->Inspect({"/statusz"}).body;
    EXPECT_THAT(std::vector<std::string>(absl::StrSplit(text, '\n')), Contains(row.line));
  }
}

// ---- flagz ----

std::string FlagzText(const Flags& flags) {
  const Endpoints endpoints({.flags = flags, .config = MakeConfig()}, DaemonState());
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

// The help says defaults in words; both must say the same.
TEST(FlagzTest, ItsDefaultsAreThoseOfTheHelp) {
  const std::string text = FlagzText({});
  for (const Setting& row : kSettings) {
    const std::string help = HelpWithDefault(row);
    const size_t from = help.rfind("(default ");
    if (from == std::string::npos) continue;
    absl::string_view said = absl::string_view(help).substr(from + 9);
    said = said.substr(0, said.find_first_of(",)"));
    // A default that words describe ("the current one") is an empty value.
    const bool described = said == "/ outside containers" || said == "the current one" ||
                           absl::StartsWith(said, "/etc/cni/net.d and");
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", row.flag, "=", described ? "" : said, "\n")));
  }
}

}  // namespace
}  // namespace kipt::agent::endpoints_test
