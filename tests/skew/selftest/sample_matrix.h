// SPDX-License-Identifier: Apache-2.0
//
// Reports that no run has measured, for tests of how reports are written.
#ifndef KIPT_TESTS_SKEW_SELFTEST_SAMPLE_MATRIX_H_
#define KIPT_TESTS_SKEW_SELFTEST_SAMPLE_MATRIX_H_

#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/skew/report/matrix_report.h"

namespace kipt::skew {

// A check of "lb-refused/tcp/ipv4" that is sound: a DROP rule counted the packet.
inline Check SampleCheck() {
  Check check;
  check.probe = {.name = "lb-refused/tcp/ipv4",
                 .from = Place::kRefusedClient,
                 .address = "1.2.3.4",
                 .port = 80};
  check.sound = check.expected = check.result.outcome = Outcome::kDropped;
  check.result.probe = check.probe.name;
  check.result.sent = 1;
  check.result.dropped_by =
      "ip filter -A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked "
      "packets\" -m mark --mark 0x8000/0x8000 -j DROP";
  return check;
}

// The same without a drop: a known leak, or an unknown one (`because` empty).
inline Check SampleLeak(const std::string& because) {
  Check check = SampleCheck();
  check.result.outcome = Outcome::kReachedHost;
  check.result.dropped_by = "";
  check.result.receivers = {{"node", 1}};
  check.result.received = 1;
  if (!because.empty()) check.expected = Outcome::kReachedHost;
  check.because = because;
  return check;
}

inline StreamCheck SampleStream(uint64_t bad, uint64_t allowed) {
  return {.count = {.probe = "stream-refused/ipv4",
                    .sent = 400,
                    .reached_host = bad,
                    .forwarded = 0,
                    .longest_gap = 400},
          .rule = "none may reach the host",
          .bad = bad,
          .allowed = allowed};
}

// One step of each kind; `id`, as of boot/kubelet-1.24/proxy-1.27/nft/agent, has the rest.
inline CellReport SampleCell(const std::string& id, Verdict verdict) {
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

// Every field of it set, to something of its own.
inline CellReport CellWithEveryField() {
  CellReport cell = SampleCell("boot/kubelet-1.25-gate-on/proxy-1.27/nft/agent", Verdict::kSound);
  cell.allowed = false;
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
                          testing::IpFamily::kIpv6,
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

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_SELFTEST_SAMPLE_MATRIX_H_
