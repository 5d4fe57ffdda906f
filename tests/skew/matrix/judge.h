// SPDX-License-Identifier: Apache-2.0
//
// What packets did, held against what is expected of them.
#ifndef KIPT_TESTS_SKEW_MATRIX_JUDGE_H_
#define KIPT_TESTS_SKEW_MATRIX_JUDGE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/skew/matrix/node_facts.h"
#include "tests/skew/matrix/test_services.h"
#include "tests/skew/probes/probe.h"
#include "tests/skew/report/matrix_report.h"
#include "tests/skew/versions/versions.h"

namespace kipt::skew {

// What is expected of a packet on a node of which the facts are known, and why where that is not
// what a sound node would do.

struct Expectation {
  Outcome sound = Outcome::kServed;
  Outcome expected = Outcome::kServed;
  // The fact; empty where the two are the same.
  std::string because = {};

  bool Sound() const { return sound == expected; }
};

Expectation Expect(const FamilyFacts& facts, const Question& question);

// The same of a stream's packets: all are to be served, masqueraded, or none is to be received.
Expectation ExpectStream(const FamilyFacts& facts, const StreamQuestion& question);

// It got nowhere, by any program.
bool IsStopped(Outcome outcome);

// How bad it is: 0 is sound, a higher number is worse. Letting through what should be dropped is
// worse than losing what should be served.
int Badness(Outcome sound, Outcome actual);

// What a probe did. A known failure explains its outcome, and no balance that was lost.
Check JudgeCheck(const FamilyFacts& facts, const Question& question, const ProbeResult& result);

// The target of a repair with few services (tests/bench), and the longest time that the machine's
// own delay may stretch it to.
inline constexpr absl::Duration kRepairPromise = absl::Milliseconds(100);
inline constexpr absl::Duration kRepairAtMost = absl::Milliseconds(250);

// Of each stream.
inline constexpr int kPacketsPerSecond = 200;

// What happened while a stream's packets were sent.
struct StreamMoment {
  // What was known of the stream's family when it began and when it ended.
  FamilyFacts before;
  FamilyFacts after;
  // The step's act was over: `before` and `after` are the same, and no actor acted.
  bool afterwards = false;
  // Another program flushed all tables, and the agent repaired its own.
  bool agent_repaired_flush = false;
  // A kubelet of this version moved from legacy iptables to nft.
  std::optional<KubeletVersion> moved_kubelet = {};
  // kube-proxy changed its mode: it removed one mode's rules before it wrote the other's.
  bool proxy_changed_mode = false;
};

// A known failure explains only packets with the fate that the facts predict, at the time that they
// hold: whatever else broke the rule stays unexpected.
StreamCheck JudgeStream(const StreamMoment& moment, const StreamQuestion& question,
                        const StreamCount& count);

// How many packets with this outcome `count` has. Silence is dropped, rejected and lost alike.
uint64_t PacketsWith(const StreamCount& count, Outcome outcome);

// How many martian packets may come in after a flush: those of kRepairPromise, and of the time for
// which this machine held up the harness itself, together kRepairAtMost.
uint64_t MartiansAfterFlush(uint64_t late_milliseconds);

struct KnownError {
  // Why iptables refuses a rule: the chain that it jumps to is not there. Empty: nothing must fail.
  std::string because = {};
  std::string missing_chain = {};
  // Or why the kernel refuses to delete this chain of nat: another chain jumps to it.
  std::string busy_chain = {};
  // A race decides: none of the families has to fail.
  bool may_succeed = false;
  // IPv4, IPv6.
  std::array<bool, 2> families = {};

  bool MustFail() const { return families[0] || families[1]; }
};

// Whether `error` (an Act's) is that failure and nothing else: each of these families failed and no
// other, and iptables reported of each that it does not find the one chain, or cannot delete the
// other. iptables-legacy names no chain there: a line of nat's restore failed.
bool Explains(const KnownError& known, const std::string& error);

// Side B against side A of the same cell: in no cell may a packet fare worse with B.

struct Comparison {
  Compared compared;
  // A sentence for each check and stream that fared worse on side B, or was asked of one of the
  // two alone.
  std::vector<std::string> worse;
};

// Checks are compared by their outcomes, streams by how many packets fared this badly or worse
// (Badness()). After a step's act their share may differ by kShareTolerance. During the act packets
// count as time: B's may take kTimeTolerance longer, and as long as the machine held up either
// harness. Not compared during the act: how long something lasted that had gone wrong with A
// before, or stayed wrong, because the harness chooses when a step acts. Whether it goes wrong is
// compared before and after. Packets that fared so because kube-proxy was changing its mode are not
// compared either.
Comparison CompareSides(const std::vector<CellReport>& cells);

inline constexpr double kShareTolerance = 0.01;
inline constexpr absl::Duration kTimeTolerance = absl::Milliseconds(25);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_JUDGE_H_
