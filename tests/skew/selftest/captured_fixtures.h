// SPDX-License-Identifier: Apache-2.0
//
// What the real kube-proxy was fed, as values, and what it wrote then: the measure of the
// generator. tests/skew/kube_proxy/testdata/README.md describes the capture.
#ifndef KIPT_TESTS_SKEW_SELFTEST_CAPTURED_FIXTURES_H_
#define KIPT_TESTS_SKEW_SELFTEST_CAPTURED_FIXTURES_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/skew/actors/iptables_calls.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns_fixture.h"

namespace kipt::skew {

enum class Fixture { kA, kB };

// A: three services, IPv4. B: ten services more, one of them IPv6.
std::vector<ServicePort> ServicesOf(Fixture fixture);

// Pods are local by 10.180.0.0/16; in IPv6 there is no local detector.
ProxySettings CapturedSettings(Version version, testing::IpFamily family);

// One captured version, and the captures that it is held against. Those of other labels were found
// to be the same lines.
struct CapturedVersion {
  const char* name;
  Version version;
  const char* a_v4;
  const char* a_v6;
  const char* b_v4;
  const char* b_v6;
  // What iptables-restore was fed, of A in IPv4.
  const char* input;
  // The version whose jumps are in the capture.
  Version jumps;
  // Whether the kernel had the counters.
  bool nfacct = false;
};
std::vector<CapturedVersion> CapturedVersions();
ProxySettings SettingsOf(const CapturedVersion& captured, testing::IpFamily family);

// Fails the test where it is missing.
std::string ReadCapturedSave(const CapturedVersion& captured, Fixture fixture,
                             testing::IpFamily family);
// Of the first sync; `label` as in CapturedVersion::input.
std::string ReadCapturedInput(const std::string& label);
// Of a later sync with nothing changed, of 1.28 or, with counters, of 1.31.
std::string ReadCapturedPartialInput(bool nfacct);
// "1.31-A-v4.change.input": of this harness' own.
std::string ReadOwnCapture(const std::string& name);
// "1.17", "1.24", "1.25", "1.28": "TABLE\tCHAIN\tBASE\tARGUMENTS" lines.
std::string ReadCapturedJumps(const std::string& label);

// Of the calls in a file below tests/skew, those of a step, "0\tiptables -w 5 ...": what comes last
// on each of its lines. None fails the test.
std::vector<std::string> CapturedCalls(const std::string& file, const std::string& step);
// Of such calls, those of `program`.
std::vector<std::string> CallsIn(const std::vector<std::string>& calls, const std::string& program);

// "TABLE: LINE" of each line of a save or of a text for iptables-restore, so that equal rulesets
// are equal: by table, the chains sorted and without counters, then the rules chain by chain, the
// chains sorted and their rules in order. In the chains whose order of services is an accident,
// rules are sorted by the service; those of one service keep their order.
std::vector<std::string> ComparableLines(const std::string& text);

// Executes the generator's output, as a kube-proxy would, in a network namespace and with a /run of
// the test's own.

using Lines = std::vector<std::string>;

inline std::string FamilyName(testing::IpFamily family) {
  return family == testing::IpFamily::kIpv4 ? "v4" : "v6";
}

class ProxyKernelTest : public testing::PrivateRunTest {
 protected:
  static void Ensure(const testing::Iptables& iptables, const std::vector<ProxyJump>& jumps) {
    EXPECT_EQ(testing::RunKubelet(iptables, StepsOf(jumps)).error, "");
  }

  // Exit code 1: it exists.
  static void EnsureChain(const testing::Iptables& iptables, const std::string& table,
                          const std::string& chain) {
    const testing::ProgramResult made = iptables.Run({"-N", chain, "-t", table});
    EXPECT_LE(made.exit_code, 1) << made;
  }

  static void Restore(const testing::Iptables& iptables, const std::string& text) {
    const testing::ProgramResult result = iptables.Restore(text);
    EXPECT_EQ(result.exit_code, 0) << result << text;
  }

  static Lines Saved(const testing::Iptables& iptables) {
    const testing::ProgramResult saved = iptables.Save();
    EXPECT_EQ(saved.exit_code, 0) << saved;
    return ComparableLines(saved.out);
  }
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_SELFTEST_CAPTURED_FIXTURES_H_
