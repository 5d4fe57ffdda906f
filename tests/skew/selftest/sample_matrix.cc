// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/selftest/sample_matrix.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

constexpr char kDropRule[] =
    "ip filter -A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked "
    "packets\" -m mark --mark 0x8000/0x8000 -j DROP";
constexpr char kFailOpen[] =
    "kube-proxy 1.20 to 1.24 makes an empty KUBE-MARK-DROP where kubelet does not fill it: its "
    "jumps "
    "to it do nothing";

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Kind {
  const char* name;
  Place from;
  const char* v4;
  const char* v6;
  int port;
  Outcome sound;
};
constexpr Kind kKinds[] = {
    {"cluster-ip", Place::kPodB, "172.30.0.41", "fd00:30::41", 80, Outcome::kServed},
    {"node-port", Place::kRefusedClient, "192.168.50.2", "fd00:50::2", 30002,
     Outcome::kServedMasqueraded},
    {"lb-allowed", Place::kAllowedClient, "1.2.3.4", "fd00:1::4", 80, Outcome::kServedMasqueraded},
    {"lb-refused", Place::kRefusedClient, "1.2.3.4", "fd00:1::4", 80, Outcome::kDropped},
    {"no-local-endpoint", Place::kRefusedClient, "192.168.50.2", "fd00:50::2", 30001,
     Outcome::kDropped},
    {"no-endpoint", Place::kRefusedClient, "192.168.50.2", "fd00:50::2", 30010, Outcome::kRejected},
};

Check CheckOf(int number) {
  const Kind& kind = kKinds[static_cast<size_t>(number) % std::size(kKinds)];
  const int round = number / static_cast<int>(std::size(kKinds));
  const bool v6 = round % 2 == 1;
  const Protocol protocol = round / 2 % 2 == 1 ? Protocol::kUdp : Protocol::kTcp;
  Check check;
  check.probe = {absl::StrCat(kind.name, round < 4 ? "" : absl::StrCat("-", round / 4), "/",
                              protocol == Protocol::kUdp ? "udp" : "tcp", v6 ? "/ipv6" : "/ipv4"),
                 ProbeKind::kConnect,
                 v6 ? IpFamily::kIpv6 : IpFamily::kIpv4,
                 protocol,
                 kind.from,
                 v6 ? kind.v6 : kind.v4,
                 kind.port,
                 kind.sound == Outcome::kServed ? 64 : 1};
  check.sound = check.expected = check.result.outcome = kind.sound;
  check.result.probe = check.probe.name;
  check.result.sent = check.probe.connections;
  if (kind.sound == Outcome::kServed) {
    check.result.receivers = {{"pod a", 31}, {"pod b", 33}};
    check.result.seen_source = "10.180.0.2";
    check.result.received = 64;
  } else if (kind.sound == Outcome::kServedMasqueraded) {
    check.result.receivers = {{"pod a", 1}};
    check.result.seen_source = "10.180.0.254";
    check.result.received = 1;
  } else if (kind.sound == Outcome::kDropped) {
    check.result.dropped_by = kDropRule;
  }
  return check;
}

void Leak(Check& check, const std::string& because) {
  check.result.outcome = Outcome::kReachedHost;
  check.result.dropped_by = "";
  check.result.receivers = {{"node", 1}};
  check.result.received = 1;
  if (!because.empty()) check.expected = Outcome::kReachedHost;
  check.because = because;
}

StepReport StepOf(const std::string& name, int checks, const std::string& because, bool leaks,
                  bool known) {
  StepReport step;
  step.name = name;
  step.done = {"21 commands", "1 restore of 63 lines"};
  for (int i = 0; i < checks; ++i) {
    Check check = CheckOf(i);
    if (leaks && check.sound == Outcome::kDropped && i < 18) Leak(check, known ? because : "");
    step.checks.push_back(std::move(check));
  }
  step.streams = {SampleStream(0, 0), SampleStream(leaks ? 12 : 0, known ? 400 : 0)};
  step.streams[1].count.probe = "stream-node-port/ipv4";
  step.streams[1].rule = "every packet must be served";
  if (leaks && known) step.streams[1].because = because;
  return step;
}

// "1.25" to the capture that its rules are like.
std::string CaptureOf(const std::string& proxy) {
  const int minor = std::stoi(proxy.substr(2));
  return minor < 19   ? "1.17"
         : minor < 24 ? "1.23"
         : minor < 25 ? "1.24"
         : minor < 27 ? "1.25"
                      : "1.28";
}

std::string RulesOf(const std::string& rulesets, const std::string& proxy, bool drops,
                    const std::string& fixture) {
  const std::string stem = absl::StrCat(rulesets, "/kube-proxy-", CaptureOf(proxy), "-", fixture);
  std::string v4 = Contents(stem + "-v4.save");
  if (drops) {
    v4 = absl::StrReplaceAll(v4, {{"*filter\n",
                                   "*filter\n-A KUBE-FIREWALL -m comment --comment \"kubernetes "
                                   "firewall for dropping marked packets\" -m mark --mark "
                                   "0x8000/0x8000 -j DROP\n"}});
  }
  return absl::StrCat("# IPv4, nft\n", v4, "# IPv6, nft\n", Contents(stem + "-v6.save"));
}

struct Sort {
  std::string path_id;
  std::string path;
  int steps;
};

CellReport LargeCell(const std::string& rulesets, const Sort& sort, const std::string& kubelet,
                     const std::string& proxy, const std::string& mode, const std::string& actor,
                     int checks) {
  const int k = std::stoi(kubelet.substr(2));
  const int p = std::stoi(proxy.substr(2));
  CellReport cell;
  cell.id = absl::StrReplaceAll(
      absl::StrCat(sort.path_id, "/kubelet-", kubelet, "/proxy-", proxy, "/", mode, "/", actor),
      {{" ", "-"}});
  cell.path = sort.path;
  cell.kubelet = kubelet;
  cell.proxy = proxy;
  cell.mode = mode;
  cell.actor = actor;
  cell.side = actor == "agent" ? "b" : "a";
  cell.allowed = k - p <= 1 && p - k <= 1;
  cell.stands_for = {absl::StrCat("kubelet ", kubelet, " with kube-proxy ", proxy),
                     absl::StrCat("kubelet 1.", k + 1, " with kube-proxy ", proxy)};
  cell.about = k >= 27 && p <= 24 ? "kube-proxy marks packets that no rule drops" : "";
  cell.seconds = 1.5 + 0.01 * k;
  const bool leaks = actor == "kubelet" && k >= 25 && p <= 24;
  const bool known = !(k == 25 && p == 24 && mode == "legacy" && sort.steps == 4);
  const char* names[] = {"kubelet starts", "kube-proxy starts", "a minute passes",
                         "services change"};
  for (int i = 0; i < sort.steps; ++i) {
    StepReport step = StepOf(names[i], i == 0 ? 0 : checks, kFailOpen, leaks && i > 0, known);
    if (i == 0) step.streams.clear();
    if (i > 0) {
      step.rules = RulesOf(rulesets, proxy, actor == "agent" && i > 1, i == 3 ? "B" : "A");
    }
    cell.steps.push_back(std::move(step));
  }
  if (p <= 19 && k >= 27 && actor == "kubelet") {
    cell.steps[1].error =
        "iptables-restore exited with 2: iptables-restore v1.8.9 (nf_tables): Chain "
        "'KUBE-MARK-DROP' "
        "does not exist. Error occurred at line: 63";
    cell.steps[1].error_expected = true;
    cell.steps[1].error_because =
        "kube-proxy up to 1.19 needs a chain that kubelet no longer makes";
  }
  return cell;
}

}  // namespace

Check SampleCheck() {
  Check check = CheckOf(3);
  return check;
}

Check SampleLeak(const std::string& because) {
  Check check = CheckOf(3);
  Leak(check, because);
  return check;
}

StreamCheck SampleStream(uint64_t bad, uint64_t allowed) {
  return {.count = {.probe = "stream-refused/ipv4",
                    .sent = 400,
                    .reached_host = bad,
                    .forwarded = 0,
                    .longest_gap = 400},
          .rule = "none may reach the host",
          .bad = bad,
          .allowed = allowed};
}

CellReport SampleCell(const std::string& id, Verdict verdict) {
  const std::vector<std::string> parts = absl::StrSplit(id, '/');
  CellReport cell;
  cell.id = id;
  cell.path = parts.at(0) == "boot" ? "fresh boot" : parts.at(0);
  cell.kubelet = absl::StrReplaceAll(parts.at(1).substr(8), {{"-", " "}});
  cell.proxy = absl::StrReplaceAll(parts.at(2).substr(6), {{"-", " "}});
  cell.mode = parts.at(parts.size() - 2);
  cell.actor = parts.back();
  cell.side = parts.back() == "agent" ? "b" : "a";
  cell.seconds = 1.9;
  StepReport step{.name = "kube-proxy starts", .checks = {SampleCheck()}};
  if (verdict == Verdict::kKnown) step.checks.push_back(SampleLeak("no component fills the chain"));
  if (verdict == Verdict::kUnexpected) step.checks.push_back(SampleLeak(""));
  if (verdict == Verdict::kBroken) cell.problem = "unshare: Operation not permitted";
  cell.steps = {step};
  return cell;
}

CellReport CellWithEveryField() {
  CellReport cell = SampleCell("boot/kubelet-1.25-gate-on/proxy-1.27/nft/agent", Verdict::kSound);
  cell.agent_only = true;
  cell.allowed = false;
  cell.stands_for = {"kubelet 1.25 with kube-proxy 1.27", "kubelet 1.26 with kube-proxy 1.27"};
  cell.about = "what it shows";
  cell.problem = "a problem";
  cell.seconds = 0.1 + 0.2;
  StepReport& step = cell.steps[0];
  step.done = {"12 commands", "1 restore of 63 lines"};
  step.error = "exit 2: \"Chain 'KUBE-MARK-DROP' does not exist\"\n\tat line 63 \x01";
  step.error_expected = true;
  step.error_because = "as known";
  step.rules = "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n";
  step.streams = {{.count = {"martian/udp", 18446744073709551615U, 1, 2, 3, 4, 5, 6, 7, 8},
                   .afterwards = true,
                   .sound = Outcome::kServed,
                   .rule = "none may reach the host",
                   .bad = 6,
                   .allowed = 7,
                   .because = "an old kubelet",
                   .while_proxy_away = {Outcome::kForwarded}}};
  step.checks[0].probe = {"martian/udp/ipv6",
                          ProbeKind::kMartian,
                          IpFamily::kIpv6,
                          Protocol::kUdp,
                          Place::kSecondNode,
                          "fd00::1",
                          8080,
                          64};
  step.checks[0].result = {"martian/udp/ipv6",
                           Outcome::kOther,
                           {{"pod a", 31}, {"pod b", 33}},
                           "10.180.0.254",
                           "a rule",
                           64,
                           63,
                           "ECONNREFUSED"};
  step.checks[0].sound = Outcome::kDropped;
  step.checks[0].expected = Outcome::kLost;
  step.checks[0].because = "a fact";
  step.checks[0].complaint = "31 of 64 are too few for pod a \xC3\xA4";
  return cell;
}

MatrixReport LargeMatrix(const std::string& rulesets, int checks) {
  MatrixReport report{.kernel = "6.18.5",
                      .iptables = "1.8.9",
                      .b = {"agent", "kube-iptables-agent 0.4.0"},
                      .seconds = 492};
  const std::vector<Sort> paths = {{"boot", "fresh boot", 3},
                                   {"upgrade-kubelet-first", "upgrade in place, kubelet first", 4},
                                   {"flush", "all tables flushed", 4}};
  const std::vector<std::pair<std::string, std::string>> versions = {
      {"1.17", "1.17"}, {"1.19", "1.20"},         {"1.27", "1.17"},     {"1.27", "1.19"},
      {"1.19", "1.23"}, {"1.27", "1.23"},         {"1.24", "1.24"},     {"1.25", "1.24"},
      {"1.27", "1.24"}, {"1.25", "1.25"},         {"1.28", "1.25"},     {"1.25", "1.26"},
      {"1.28", "1.26"}, {"1.17", "1.27"},         {"1.24", "1.27"},     {"1.25", "1.27"},
      {"1.28", "1.27"}, {"1.25 gate on", "1.24"}, {"1.23", "1.23 ipvs"}};
  for (const Sort& path : paths) {
    for (const auto& [kubelet, proxy] : versions) {
      for (const std::string mode : {"nft", "legacy"}) {
        for (const std::string actor : {"kubelet", "agent"}) {
          report.cells.push_back(LargeCell(rulesets, path, kubelet, proxy, mode, actor, checks));
        }
      }
    }
  }
  report.cells[5].problem = "the node could not be made: ip: RTNETLINK answers: File exists";
  return report;
}

}  // namespace kipt::skew
