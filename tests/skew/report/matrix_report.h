// SPDX-License-Identifier: Apache-2.0
//
// What a run of the matrix found, as values. Nothing here reads the machine's state.
#ifndef KIPT_TESTS_SKEW_REPORT_MATRIX_REPORT_H_
#define KIPT_TESTS_SKEW_REPORT_MATRIX_REPORT_H_

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/skew/probes/probe.h"
#include "tests/skew/probes/stream.h"

namespace kipt::skew {

struct Check {
  Probe probe;
  ProbeResult result;
  // What a sound node would do, and what is expected here; they differ where a failure is known.
  Outcome sound = Outcome::kServed;
  Outcome expected = Outcome::kServed;
  // Why `expected` is: the fact. Empty where it is `sound`.
  std::string because = {};
  // Beyond the outcome: what of the packets themselves was wrong (the balance, the affinity), a
  // sentence. Empty: nothing.
  std::string complaint = {};

  bool AsExpected() const { return result.outcome == expected && complaint.empty(); }
  bool Sound() const { return result.outcome == sound && complaint.empty(); }
};

struct StreamCheck {
  StreamCount count;
  // Its packets were sent after the step's act, while the node was asked and no actor acted.
  bool afterwards = false;
  // What becomes of each packet on a sound node; kDropped: it is not received.
  Outcome sound = Outcome::kDropped;
  // What its packets must not do, a sentence: "none may reach the host". `bad` of them did.
  std::string rule;
  uint64_t bad = 0;
  // How many of these a known failure explains, and which: 0 where none is known.
  uint64_t allowed = 0;
  std::string because = {};
  // Fates that packets have while kube-proxy changes its mode. How long that takes is compared with
  // nothing.
  std::vector<Outcome> while_proxy_away = {};

  bool AsExpected() const { return bad <= allowed; }
  bool Sound() const { return bad == 0; }
};

// "stream-martian/ipv4", "stream-martian-afterwards/ipv4".
std::string NameOf(const StreamCheck& stream);

struct StepReport {
  std::string name;
  // What actors did, and their errors as real Kubernetes would log them.
  std::vector<std::string> done = {};
  std::string error = {};
  // Whether that error is what was expected, and why.
  bool error_expected = false;
  std::string error_because = {};
  std::vector<Check> checks = {};
  std::vector<StreamCheck> streams = {};
  // What iptables-save prints when the step is over, of both families.
  std::string rules = {};
};

// "Known": some packets, or an actor, failed as expected. "Broken": the cell could not be run, or
// asked nothing.
enum class Verdict { kSound, kKnown, kUnexpected, kBroken };
const char* NameOf(Verdict verdict);

struct CellReport {
  // "boot/kubelet-1.24/proxy-1.27/nft/agent": unique in a matrix.
  std::string id;
  // Its coordinates: the path ("fresh boot"), kubelet's generation ("1.25 gate on") and
  // kube-proxy's, "nft" or "legacy", the keeper of kubelet's chains ("kubelet", "agent", "agent-b":
  // a side's name), and the side of the comparison: "a" or "b".
  std::string path;
  std::string kubelet;
  std::string proxy;
  std::string mode;
  std::string actor;
  std::string side = "a";
  // Whether the version skew policy allows the pair, and what the cell is there to show, a sentence
  // or nothing.
  bool allowed = true;
  std::string about = {};
  std::vector<StepReport> steps = {};
  std::string problem = {};
  double seconds = 0;
};

Verdict VerdictOf(const StepReport& step);
Verdict VerdictOf(const CellReport& cell);

// What of a cell was not sound, known or not, over all its steps.
struct NotSound {
  size_t checks = 0;
  size_t streams = 0;

  size_t Total() const { return checks + streams; }
};
NotSound NotSoundOf(const CellReport& cell);

struct Compared {
  size_t cells = 0;
  size_t checks = 0;
  size_t streams = 0;
};

// A side of the comparison: what cells call it, and what it is.
struct SideReport {
  // "agent".
  std::string name;
  // "kube-iptables-agent 0.4.0".
  std::string what;
};

struct MatrixReport {
  std::string kernel;
  std::string iptables;
  SideReport a = {.name = "kubelet", .what = "the kubelet of each cell"};
  SideReport b = {.name = "agent", .what = "kube-iptables-agent"};
  std::vector<CellReport> cells = {};
  double seconds = 0;
  Compared compared = {};
  // What is wrong with the matrix as a whole: "agent is worse than kubelet in ...". Empty:
  // nothing.
  std::vector<std::string> problems = {};
};

// The numbers of cells of each verdict, in the order of the enumeration.
using Tally = std::array<int, 4>;
Tally TallyOf(const MatrixReport& report);
bool AllAsExpected(const MatrixReport& report);

// JSON, whose field names are stable; ParseCellReport(CellJson(cell)) is the cell again (workers
// give their cells to the parent this way). InvalidArgument: it is not what CellJson() writes.
std::string CellJson(const CellReport& cell);
absl::StatusOr<CellReport> ParseCellReport(const std::string& json);
std::string MatrixJson(const MatrixReport& report);

// For a terminal: one table per path and mode, then every cell that is not as
// expected, with its checks.
std::string MatrixText(const MatrixReport& report);
// One line when a cell is done: "[ 17/120] sound  boot kubelet 1.24 proxy 1.27 nft agent  1.9 s".
std::string ProgressLine(const CellReport& cell, int done, int of);
std::string MatrixHtml(const MatrixReport& report);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_REPORT_MATRIX_REPORT_H_
