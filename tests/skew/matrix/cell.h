// SPDX-License-Identifier: Apache-2.0
//
// The matrix: which kubelets meet which kube-proxies, on which path, and which program keeps
// kubelet's chains.
#ifndef KIPT_TESTS_SKEW_MATRIX_CELL_H_
#define KIPT_TESTS_SKEW_MATRIX_CELL_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/skew/versions/versions.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

// How a node comes to have its versions. `from` is what it had before.
enum class Path {
  // A fresh node starts kubelet, then kube-proxy.
  kBoot,
  // In place: the node works on with `from`'s rules while one, then the other, is replaced.
  kUpgradeKubeletFirst,
  kUpgradeProxyFirst,
  // Up, kubelet first, and back again.
  kRollback,
  // And up once more.
  kUpDownUp,
  // A firewall empties all tables; a minute passes.
  kFlush,
  // No services while kubelet is replaced; then kube-proxy is, and services appear.
  kIdleFlip,
  // The node boots with legacy iptables, and everything moves to nft without a reboot.
  kToNft,
  // kube-proxy is started anew in its nftables mode, or from there in its iptables mode, while
  // packets flow.
  kToNftables,
  kFromNftables,
  // `kube-proxy --cleanup` runs instead of kube-proxy, which later starts again.
  kProxyCleanup,
};
// In the order in which they are listed.
std::vector<Path> AllPaths();
const char* IdOf(Path path);
const char* NameOf(Path path);

// Whether it has cells of its own, not those of all pairs.
bool HasOwnCells(Path path);
// Whether it comes from other versions (Cell::from) at all.
bool MovesBetweenVersions(Path path);

enum class Actor { kKubelet, kAgent };
const char* NameOf(Actor actor);

// The program that keeps kubelet's chains on one side of the comparison.
struct Side {
  Actor actor = Actor::kKubelet;
  // Of a kubelet: its version in every cell. None: the cell's.
  std::optional<KubeletVersion> version = {};
  // The agent, or next to a kubelet the one that audits the node before kube-proxy changes its
  // mode: an absolute path. Empty: none does.
  std::string program = {};

  bool operator==(const Side&) const = default;
};
struct Sides {
  Side a = {.actor = Actor::kKubelet};
  Side b = {.actor = Actor::kAgent};
};
// What the cells' ids call each: "kubelet", "agent", "kubelet-1.31"; where both would be called the
// same, "agent-a" and "agent-b".
std::pair<std::string, std::string> NamesOf(const Sides& sides);

// What else is on the node.
enum class Company {
  kNone,
  // Once the node has booted: a chain that leads to KUBE-MARK-DROP, one that leads to
  // KUBE-MARK-MASQ, and a CNI configuration that names the latter.
  kThirdParties,
  // kube-proxy masquerades by bit 20, kubelet by 14.
  kOtherBit,
};

struct Pair {
  KubeletVersion kubelet;
  ProxyVersion proxy;

  bool operator==(const Pair&) const = default;
};

struct Cell {
  Path path = Path::kBoot;
  Pair pair;
  Pair from;
  testing::IptablesMode mode = testing::IptablesMode::kNft;
  Actor actor = Actor::kKubelet;
  Company company = Company::kNone;
  // What it is there to show, a sentence or nothing.
  std::string about = {};
  // The side of the comparison, and what its id calls it; empty: as the actor.
  bool is_b = false;
  std::string side = {};
  // Of a side with a version of its own: it runs in place of pair.kubelet.
  std::optional<KubeletVersion> instead = {};
  // A step of the path that replaces kubelet does so even where its version stays, because it does
  // not on the other side.
  bool replaces_same = false;
  // As Side::program.
  std::string program = {};
};

// Whether kube-proxy is in its nftables mode at some time.
bool UsesNftables(const Cell& cell);

// "boot/kubelet-1.24/proxy-1.27/nft/agent", "boot/kubelet-1.25/proxy-1.27/other-bit/nft/kubelet".
std::string CellId(const Cell& cell);

// One of each cell for each side. If both sides have a version of their own, the names have A's,
// and each kube-proxy is met once.
std::vector<Cell> OnSides(const std::vector<Cell>& cells, const Sides& sides);

// Pairs of generations on `paths`, in both modes. On paths with cells of their own, these.
std::vector<Cell> DefaultCells(const std::vector<Path>& paths);
// The paths of the default matrix.
std::vector<Path> MainPaths();
// Every pair of versions on `paths`; on kube-proxy's own paths their cells.
std::vector<Cell> AllCells(const std::vector<Path>& paths);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_CELL_H_
