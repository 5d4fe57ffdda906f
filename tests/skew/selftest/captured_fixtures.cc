// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/selftest/captured_fixtures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/temporary_tree.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

constexpr char kAgentRulesets[] = KIPT_TESTS_DIR "/agent/testdata/rulesets/kube-proxy-";
constexpr char kInteropData[] = KIPT_TESTS_DIR "/interop/testdata/kube-proxy/";
constexpr char kOwnData[] = KIPT_TESTS_DIR "/skew/kube_proxy/testdata/kube-proxy-";

// Of these files, which other tests may have already, the first that is there.
std::string ReadFile(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (std::string text = FileText(path); !text.empty()) return text;
  }
  ADD_FAILURE() << "none of " << absl::StrJoin(paths, ", ");
  return "";
}

// Port 80 of that name, over TCP.
ServicePort P80(const char* service, const char* cluster_ip, int node_port,
                const std::vector<Endpoint>& endpoints) {
  return {.service = service,
          .port_name = "p80",
          .cluster_ip = cluster_ip,
          .port = 80,
          .node_port = node_port,
          .endpoints = endpoints};
}

std::vector<ServicePort> FixtureA() {
  std::vector<ServicePort> ports = {
      P80("ns1/svc1", "172.30.0.41", 0, {{"10.180.0.1", 80, true}, {"10.180.0.2", 80, true}}),
      P80("ns2/svc2", "172.30.0.42", 30001, {{"10.180.1.1", 80, false}}),
      P80("ns3/svc3", "172.30.0.43", 30002, {{"10.180.0.3", 80, true}}),
  };
  ports[1].external_local = true;
  ports[2].load_balancer_ips = {"1.2.3.4"};
  ports[2].source_ranges = {"203.0.113.0/24"};
  return ports;
}

std::vector<ServicePort> FixtureB() {
  // One endpoint on this node, and one on another.
  const auto both = [](const char* host, int port) {
    return std::vector<Endpoint>{{absl::StrCat("10.180.0.", host), port, true},
                                 {absl::StrCat("10.180.1.", host), port, false}};
  };
  const auto far = [](const char* host, int port) {
    return std::vector<Endpoint>{{absl::StrCat("10.180.1.", host), port, false}};
  };
  const auto dns = [&](const char* name, Protocol protocol) {
    return ServicePort{.service = "b/dns",
                       .port_name = name,
                       .protocol = protocol,
                       .cluster_ip = "172.30.1.10",
                       .port = 53,
                       .endpoints = both("20", 53)};
  };
  std::vector<ServicePort> ports = {
      P80("b/aff", "172.30.1.1", 0, both("11", 80)),
      P80("b/noep", "172.30.1.2", 30010, {}),
      P80("b/np", "172.30.1.3", 30011, far("13", 80)),
      P80("b/hairpin", "172.30.1.4", 0,
          {{"10.180.0.14", 80, true}, {"10.180.0.15", 80, true}, {"10.180.1.14", 80, false}}),
      dns("dns", Protocol::kUdp),
      dns("dns-tcp", Protocol::kTcp),
      {.service = "b/unnamed",
       .cluster_ip = "172.30.1.5",
       .port = 443,
       .external_ips = {"192.0.2.10"},
       .endpoints = far("15", 443)},
      P80("b/lblocal", "172.30.1.6", 30012, both("16", 80)),
      P80("b/itpnone", "172.30.1.7", 0, far("17", 80)),
      P80("b/itpsome", "172.30.1.8", 0, both("18", 80)),
      P80("b/six", "fd00:30::41", 30013, {{"fd00:180::1", 80, true}, {"fd00:180:1::1", 80, false}}),
  };
  ports[0].affinity_seconds = 10800;
  ports[7].load_balancer_ips = {"1.2.3.5"};
  ports[7].external_local = true;
  ports[7].health_check_node_port = 32000;
  ports[8].internal_local = ports[9].internal_local = true;
  return ports;
}

struct Table {
  std::set<std::string> chains;
  std::map<std::string, std::vector<std::string>> rules;
  // "-X CHAIN".
  std::vector<std::string> deletions;
};

bool HasAccidentalOrder(const std::string& chain) {
  static constexpr const char* kChains[] = {"KUBE-SERVICES", "KUBE-NODEPORTS",
                                            "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"};
  return std::find(std::begin(kChains), std::end(kChains), chain) != std::end(kChains);
}

// The first word of a rule's comment: the service's name and port. The comment "kubernetes service
// nodeports" marks the rule that must be last.
std::string ServiceIn(const std::string& rule) {
  const std::string flag = "--comment ";
  const size_t at = rule.find(flag);
  if (at == std::string::npos) return "";
  size_t begin = at + flag.size();
  if (rule[begin] == '"') ++begin;
  return rule.substr(begin, rule.find_first_of(" \"", begin) - begin);
}

void SortByService(std::vector<std::string>* rules) {
  const auto is_service = [](const std::string& rule) {
    return ServiceIn(rule).find('/') != std::string::npos;
  };
  const auto end = std::find_if_not(rules->begin(), rules->end(), is_service);
  std::stable_sort(rules->begin(), end, [](const std::string& a, const std::string& b) {
    return ServiceIn(a) < ServiceIn(b);
  });
}

std::map<std::string, Table> Parse(const std::string& text) {
  std::map<std::string, Table> tables;
  Table* table = nullptr;
  for (absl::string_view piece : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::string line(piece);
    if (line[0] == '*') table = &tables[line.substr(1)];
    if (table == nullptr) continue;
    if (line[0] == ':') table->chains.insert(line.substr(0, line.find(" [")));
    if (absl::StartsWith(line, "-X ")) table->deletions.push_back(line);
    if (!absl::StartsWith(line, "-A ")) continue;
    table->rules[line.substr(3, line.find(' ', 3) - 3)].push_back(line);
  }
  return tables;
}

}  // namespace

std::vector<ServicePort> ServicesOf(Fixture fixture) {
  return fixture == Fixture::kA ? FixtureA() : FixtureB();
}

ProxySettings CapturedSettings(Version version, IpFamily family) {
  return {.version = version,
          .family = family,
          .pod_cidr = family == IpFamily::kIpv4 ? "10.180.0.0/16" : ""};
}

std::vector<CapturedVersion> CapturedVersions() {
  return {
      {"V1_17", {1, 17}, "1.17", "1.17", "1.17", "1.17", "1.17", {1, 17}},
      {"V1_18", {1, 18}, "1.18", "1.18", "1.18", "1.18", "1.18", {1, 18}},
      // 1.19 was not captured. It is taken to be as 1.18.6 in what it restores; the capture's jumps
      // are 1.20's, which 1.19 is not known to have had.
      {"V1_18_6", {1, 19}, "1.20", "1.20", "1.18.6", "1.18.6", "1.20", {1, 20}},
      {"V1_20", {1, 20}, "1.20", "1.20", "1.20", "1.20", "1.20", {1, 20}},
      {"V1_21", {1, 21}, "1.21", "1.21", "1.21", "1.21", "1.21", {1, 21}},
      {"V1_22", {1, 22}, "1.22", "1.21", "1.22", "1.22", "1.22", {1, 22}},
      {"V1_23", {1, 23}, "1.23", "1.24", "1.23", "1.23", "1.23", {1, 23}},
      {"V1_24", {1, 24}, "1.24", "1.24", "1.24", "1.24", "1.24", {1, 24}},
      {"V1_25", {1, 25}, "1.25", "1.25", "1.25", "1.25", "1.25", {1, 25}},
      {"V1_26", {1, 26}, "1.25", "1.26", "1.25", "1.26", "1.25", {1, 26}},
      {"V1_27", {1, 27}, "1.28", "1.28", "1.28", "1.28", "1.28", {1, 27}},
      {"V1_28", {1, 28}, "1.28", "1.28", "1.28", "1.28", "1.28", {1, 28}},
      {"V1_29", {1, 29}, "1.28", "1.28", "1.28", "1.28", "1.28", {1, 29}},
      {"V1_30", {1, 30}, "1.28", "1.28", "1.28", "1.28", "1.28", {1, 30}},
      {"V1_31", {1, 31}, "1.31", "1.31", "1.31", "1.31", "1.31", {1, 31}, true},
      {"V1_31_nonfacct", {1, 31}, "1.28", "1.28", "1.28", "1.28", "1.28", {1, 31}},
      {"V1_32", {1, 32}, "1.31", "1.31", "1.31", "1.31", "1.31", {1, 32}, true},
      {"V1_33", {1, 33}, "1.31", "1.31", "1.31", "1.31", "1.31", {1, 33}, true},
      {"V1_34", {1, 34}, "1.31", "1.31", "1.31", "1.31", "1.31", {1, 34}, true},
      {"V1_35", {1, 35}, "1.31", "1.31", "1.31", "1.31", "1.31", {1, 35}, true},
      {"V1_36", {1, 36}, "1.31", "1.31", "1.31", "1.31", "1.31", {1, 36}, true},
      {"V1_36_nonfacct", {1, 36}, "1.28", "1.28", "1.28", "1.28", "1.28", {1, 36}},
  };
}

ProxySettings SettingsOf(const CapturedVersion& captured, IpFamily family) {
  ProxySettings settings = CapturedSettings(captured.version, family);
  settings.nfacct = captured.nfacct;
  return settings;
}

std::string ReadCapturedSave(const CapturedVersion& captured, Fixture fixture, IpFamily family) {
  const bool four = family == IpFamily::kIpv4;
  const char* of_a = four ? captured.a_v4 : captured.a_v6;
  const char* of_b = four ? captured.b_v4 : captured.b_v6;
  const char* label = fixture == Fixture::kA ? of_a : of_b;
  const std::string name =
      absl::StrCat(label, fixture == Fixture::kA ? "-A-" : "-B-", four ? "v4" : "v6", ".save");
  return ReadFile({kAgentRulesets + name, kOwnData + name});
}

std::string ReadCapturedInput(const std::string& label) {
  return ReadFile(
      {absl::StrCat(kInteropData, label, ".input"), absl::StrCat(kOwnData, label, "-A-v4.input")});
}

std::string ReadCapturedPartialInput(bool nfacct) {
  return nfacct ? ReadOwnCapture("1.31-A-v4.resync.input")
                : ReadFile({absl::StrCat(kInteropData, "1.28.resync.input")});
}

std::string ReadOwnCapture(const std::string& name) { return ReadFile({kOwnData + name}); }

std::string ReadCapturedJumps(const std::string& label) {
  return ReadFile(
      {absl::StrCat(kInteropData, label, ".jumps"), absl::StrCat(kOwnData, label, ".jumps")});
}

std::vector<std::string> CapturedCalls(const std::string& file, const std::string& step) {
  std::vector<std::string> calls;
  const std::string text = ReadFile({absl::StrCat(KIPT_TESTS_DIR "/skew/", file)});
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    if (fields.size() < 3 || fields[fields.size() - 3] != step) continue;
    calls.push_back(absl::StrCat(fields[fields.size() - 2], "\t", fields.back()));
  }
  EXPECT_FALSE(calls.empty()) << file << " " << step;
  return calls;
}

std::vector<std::string> CallsIn(const std::vector<std::string>& calls,
                                 const std::string& program) {
  std::vector<std::string> of_program;
  for (const std::string& call : calls) {
    if (absl::StrContains(call, absl::StrCat("\t", program, " "))) of_program.push_back(call);
  }
  return of_program;
}

std::vector<std::string> ComparableLines(const std::string& text) {
  std::vector<std::string> lines;
  for (auto& [name, table] : Parse(text)) {
    for (const std::string& chain : table.chains) lines.push_back(absl::StrCat(name, ": ", chain));
    for (auto& [chain, rules] : table.rules) {
      if (HasAccidentalOrder(chain)) SortByService(&rules);
      for (const std::string& rule : rules) lines.push_back(absl::StrCat(name, ": ", rule));
    }
    // In the order of a map.
    std::sort(table.deletions.begin(), table.deletions.end());
    for (const std::string& line : table.deletions) lines.push_back(absl::StrCat(name, ": ", line));
  }
  return lines;
}

}  // namespace kipt::skew
