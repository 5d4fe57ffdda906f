// SPDX-License-Identifier: Apache-2.0
//
// Runs one cell: makes a node, lets the actors act along the path, and asks with packets after each
// step what the node does.
#ifndef KIPT_TESTS_SKEW_MATRIX_RUN_CELL_H_
#define KIPT_TESTS_SKEW_MATRIX_RUN_CELL_H_

#include <string>

#include "tests/skew/matrix/cell.h"
#include "tests/skew/report/matrix_report.h"

namespace kipt::skew {

struct HarnessOptions {
  // Whether an agent runs with --stale-chains=retire.
  bool retire = true;
  // Absolute path of the agent that audits the node of a cell without an agent, before kube-proxy
  // changes its mode. Empty: none does.
  std::string audit_program = {};
  // Where the other Debian releases are: DIR/bullseye, DIR/trixie. Empty: there are none, and cells
  // that need them are broken.
  std::string chroot_dir = {};
  // Absolute path of a kube-proxy that runs where a cell has one of this version, or of one that
  // writes the same rules, in its iptables or nftables mode. Empty: there is none.
  std::string proxy_program = {};
  Version proxy_version = {};
  // The same of a kubelet, where a kubelet keeps its chains (Side::version is none).
  std::string kubelet_program = {};
  KubeletVersion kubelet_version = {};
  // Packets per second of each stream.
  int stream_rate = 200;
};

// Whether the program runs as this kube-proxy.
bool RunsProxyProgram(const HarnessOptions& options, const ProxyVersion& proxy);
// Whether it runs at some time in this cell.
bool RunsProxyProgram(const HarnessOptions& options, const Cell& cell);

bool RunsKubeletProgram(const HarnessOptions& options, const KubeletVersion& kubelet);
// Whether it runs at some time in this cell, or would on its side with a kubelet.
bool RunsKubeletProgram(const HarnessOptions& options, const Cell& cell);

// Which cell it is, and nothing of what was found.
CellReport ReportOf(const Cell& cell);

// In the calling process, which must have one thread only and a mount namespace of its own with a
// /run of its own (workers.h sees to that). A cell that cannot be run is a report with a `problem`.
CellReport RunCell(const Cell& cell, const HarnessOptions& options);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_RUN_CELL_H_
