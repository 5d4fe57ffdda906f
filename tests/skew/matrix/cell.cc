// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/cell.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace kipt::skew {
namespace {

using testing::IptablesMode;

struct PathName {
  Path path;
  const char* id;
  const char* name;
};
constexpr PathName kPathNames[] = {
    {Path::kBoot, "boot", "fresh boot"},
    {Path::kUpgradeKubeletFirst, "upgrade-kubelet-first", "upgrade in place, kubelet first"},
    {Path::kFlush, "flush", "all tables flushed"},
    {Path::kUpgradeProxyFirst, "upgrade-proxy-first", "upgrade in place, kube-proxy first"},
    {Path::kRollback, "rollback", "upgrade and rollback"},
    {Path::kUpDownUp, "up-down-up", "upgrade, downgrade, upgrade"},
    {Path::kIdleFlip, "idle-flip", "upgrade while idle, then services appear"},
    {Path::kToNft, "to-nft", "node moved from iptables-legacy to nft"},
    {Path::kToNftables, "to-nftables", "kube-proxy moved from iptables to nftables mode"},
    {Path::kFromNftables, "from-nftables", "kube-proxy moved from nftables to iptables mode"},
    {Path::kProxyCleanup, "proxy-cleanup", "kube-proxy removed by --cleanup, and back"},
};

const PathName& RowOf(Path path) {
  return *std::find_if(std::begin(kPathNames), std::end(kPathNames),
                       [path](const PathName& row) { return row.path == path; });
}

constexpr IptablesMode kBothModes[] = {IptablesMode::kNft, IptablesMode::kLegacy};

constexpr ProxyVersion Ipvs(int minor) { return {{1, minor}, ProxyMode::kIpvs}; }
constexpr ProxyVersion Nftables(int minor) { return {{1, minor}, ProxyMode::kNftables}; }

Pair Minors(int kubelet, int proxy) { return {{{1, kubelet}, {}}, {{1, proxy}}}; }
// Both of the same minor, kubelet with its gate set.
Pair WithGate(bool gate, int minor) { return {{{1, minor}, gate}, {{1, minor}}}; }
// kubelet of the same minor.
Pair With(const ProxyVersion& proxy) { return {{proxy.version, {}}, proxy}; }

struct Row {
  Pair pair;
  Pair from;
  const char* about;
  Company company = Company::kNone;
  // Its own; empty: those of all rows.
  std::vector<Path> paths = {};
};

// One pair for every two generations that the policy allows from 1.23 on ...
std::vector<Row> AllowedPairs() {
  return {
      {Minors(23, 23), Minors(22, 22), ""},
      {Minors(24, 24), Minors(23, 23), ""},
      {Minors(25, 25), Minors(24, 24), "the first kube-proxy that drops without kubelet's chain"},
      {Minors(26, 26), Minors(25, 25), ""},
      {Minors(27, 27), Minors(26, 26), "the gate's default changes, kube-proxy drops martians"},
      {Minors(28, 25), Minors(25, 25), "the gate's default changes, with the oldest kube-proxy"},
      {Minors(28, 26), Minors(26, 26), "the gate's default changes"},
      {Minors(26, 27), Minors(26, 26),
       "kube-proxy empties KUBE-FIREWALL of a kubelet that fills it"},
      {WithGate(false, 27), Minors(26, 26), "the gate is turned off by hand"},
      {WithGate(true, 26), Minors(26, 26), "the gate is turned on by hand"},
      {Minors(31, 31), Minors(30, 30), "kube-proxy counts by nfacct"},
      {Minors(33, 33), Minors(32, 32), "kubelet probes each family, kube-proxy syncs every hour"},
      {Minors(36, 36), Minors(33, 33), "a lock time-out is a lost canary to both"},
  };
}

// ... where these differ in when they write, not in what: on the paths that show it.
std::vector<Row> PairsOfTheSameRules() {
  return {
      {Minors(32, 33), Minors(31, 32), ""}, {Minors(32, 34), Minors(31, 33), ""},
      {Minors(33, 30), Minors(32, 30), ""}, {Minors(33, 32), Minors(32, 31), ""},
      {Minors(33, 36), Minors(32, 33), ""}, {Minors(34, 31), Minors(33, 30), ""},
      {Minors(36, 33), Minors(33, 33), ""},
  };
}

// ... and older ones, and those that it does not allow.
std::vector<Row> OtherPairs() {
  return {
      {Minors(17, 17), Minors(17, 17), "the oldest rules; IPv4 only"},
      {Minors(20, 20), Minors(19, 19), "kubelet writes IPv6 for the first time"},
      {Minors(27, 17), Minors(17, 17), "kube-proxy needs a chain that no component makes"},
      {Minors(27, 19), Minors(19, 19), "kube-proxy needs a chain that no component makes"},
      {Minors(27, 23), Minors(23, 23), "kube-proxy marks packets that no rule drops"},
      {Minors(27, 24), Minors(24, 24), "kube-proxy marks packets that no rule drops"},
      {Minors(25, 24), Minors(24, 24), "kubelet 1.25 forgets the IPv6 jumps"},
      {{{{1, 25}, true}, {{1, 24}}},
       Minors(24, 24),
       "the gate is turned on by hand while kube-proxy still needs KUBE-MARK-DROP"},
      {Minors(17, 27), Minors(17, 17),
       "kube-proxy empties KUBE-FIREWALL of a kubelet that fills it"},
      {Minors(24, 27), Minors(24, 24),
       "kube-proxy empties KUBE-FIREWALL of a kubelet that fills it"},
  };
}

// IPVS serves nothing here: what counts is what becomes of kubelet's chains.
std::vector<Row> OtherModes() {
  return {
      {With(Ipvs(23)), With(Ipvs(22)), "IPVS, when it used KUBE-MARK-DROP"},
      {With(Ipvs(27)), With(Ipvs(26)), "IPVS, since it no longer uses KUBE-MARK-DROP"},
      {With(Nftables(31)), With(Nftables(31)), "no component makes KUBE-MARK-MASQ on such a node"},
      {With(Nftables(33)), With(Nftables(31)), "nftables mode filters at iptables' own priority"},
      {With(Nftables(36)), With(Nftables(34)), "nftables mode marks packets inline"},
  };
}

// On one path, which may have come from another pair.
Row On(Path path, const Pair& pair, const char* about, Company company = Company::kNone) {
  return {pair, pair, about, company, {path}};
}

std::vector<Row> CompanyRows() {
  std::vector<Row> rows;
  const auto third = [&rows](Pair pair, Pair from, const char* about) {
    rows.push_back(
        {pair, from, about, Company::kThirdParties, {Path::kBoot, Path::kUpgradeKubeletFirst}});
  };
  third(Minors(24, 24), Minors(23, 23), "third parties use kubelet's chains");
  third(Minors(26, 27), Minors(26, 26), "KUBE-MARK-DROP's drop is wiped at every sync");
  third(Minors(27, 27), Minors(26, 26), "third parties find no KUBE-MARK-DROP on a fresh node");
  rows.push_back(On(Path::kBoot, With(Nftables(31)), "third parties find no chain of kubelet's",
                    Company::kThirdParties));
  for (const Pair& pair : {Minors(24, 24), Minors(25, 25), Minors(26, 27)}) {
    rows.push_back(On(Path::kBoot, pair, "kubelet and kube-proxy use different mark bits",
                      Company::kOtherBit));
  }
  return rows;
}

// kube-proxy changes its mode, or is removed: the generations of either, and a kubelet that keeps
// KUBE-POSTROUTING too.
std::vector<Row> ModeRows() {
  const char* shared = "kube-proxy removes a chain that kubelet has too";
  const Pair gate_off_31 = {{{1, 27}, false}, {{1, 31}}};
  const Pair gate_off_36 = {{{1, 27}, false}, {{1, 36}}};
  std::vector<Row> rows;
  const auto add = [&rows](Company company, const Pair& pair, const char* about) {
    Pair nftables = pair;
    nftables.proxy.mode = ProxyMode::kNftables;
    rows.push_back({nftables, pair, about, company, {Path::kToNftables}});
    rows.push_back(On(Path::kProxyCleanup, pair, about, company));
    if (company == Company::kThirdParties) return;
    rows.push_back({pair, nftables, about, company, {Path::kFromNftables}});
  };
  for (const Pair& pair :
       {gate_off_31, gate_off_36, Minors(31, 31), Minors(33, 33), Minors(34, 34), Minors(36, 36)}) {
    add(Company::kNone, pair,
        CleansUp(pair.kubelet) ? "kube-proxy's rules are removed, kubelet's stay" : shared);
  }
  for (int minor = kOldest.minor; minor <= kNewestCaptured.minor; ++minor) {
    const KubeletVersion last_with_marks = {{1, 27}, false};
    const Pair pair = {minor < 27 ? KubeletVersion{{1, minor}} : last_with_marks, {{1, minor}}};
    if (pair == gate_off_31 || pair == gate_off_36) continue;
    rows.push_back(On(Path::kProxyCleanup, pair, shared));
  }
  for (const Pair& pair : {gate_off_36, Minors(33, 33), Minors(36, 36)}) {
    add(Company::kThirdParties, pair,
        "a foreign jump to KUBE-MARK-MASQ, which from 1.34 on keeps all of nat");
  }
  return rows;
}

class Cells {
 public:
  // Rows of all paths, path by path.
  void AddOnEach(const std::vector<Path>& paths, const std::vector<Row>& rows) {
    for (const Path path : paths) {
      for (const Row& row : rows) {
        if (!MovesBetweenVersions(path) || row.pair != row.from) Add(row, path);
      }
    }
  }

  // Rows with paths of their own, row by row: those that are among `paths`.
  void AddOwn(const std::vector<Path>& paths, const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      for (const Path path : row.paths) {
        if (std::find(paths.begin(), paths.end(), path) != paths.end()) Add(row, path);
      }
    }
  }

  std::vector<Cell> Take() && { return std::move(cells_); }

 private:
  void Add(const Row& row, Path path) {
    for (const IptablesMode mode : kBothModes) {
      if (mode == IptablesMode::kLegacy && path == Path::kToNft) continue;
      cells_.push_back({.path = path,
                        .pair = row.pair,
                        .from = row.from,
                        .mode = mode,
                        .company = row.company,
                        .about = row.about});
    }
  }

  std::vector<Cell> cells_;
};

}  // namespace

std::vector<Path> AllPaths() {
  std::vector<Path> paths;
  for (const PathName& row : kPathNames) paths.push_back(row.path);
  return paths;
}

const char* IdOf(Path path) { return RowOf(path).id; }

const char* NameOf(Path path) { return RowOf(path).name; }

const char* NameOf(Actor actor) { return actor == Actor::kKubelet ? "kubelet" : "agent"; }

std::string CellId(const Cell& cell) {
  // In the order of the enumeration.
  constexpr const char* kCompanies[] = {"", "third-parties/", "other-bit/"};
  return absl::StrReplaceAll(
      absl::StrCat(IdOf(cell.path), "/kubelet-", ToString(cell.pair.kubelet), "/proxy-",
                   ToString(cell.pair.proxy), "/", kCompanies[static_cast<size_t>(cell.company)],
                   testing::NameOf(cell.mode), "/",
                   cell.side.empty() ? NameOf(cell.actor) : cell.side),
      {{" ", "-"}});
}

std::pair<std::string, std::string> NamesOf(const Sides& sides) {
  const auto name = [](const Side& side) {
    return absl::StrReplaceAll(
        absl::StrCat(NameOf(side.actor), side.version.has_value() ? "-" : "",
                     side.version.has_value() ? ToString(*side.version) : ""),
        {{" ", "-"}});
  };
  const std::string a = name(sides.a);
  const std::string b = name(sides.b);
  if (a != b) return {a, b};
  return {a + "-a", b + "-b"};
}

std::vector<Cell> OnSides(const std::vector<Cell>& cells, const Sides& sides) {
  const auto [a, b] = NamesOf(sides);
  const bool both_have_versions = sides.a.version.has_value() && sides.b.version.has_value();
  std::set<std::string> seen;
  std::vector<Cell> result;
  for (Cell same : cells) {
    if (both_have_versions) same.pair.kubelet = *sides.a.version;
    if (!seen.insert(CellId(same)).second) continue;
    for (const bool is_b : {false, true}) {
      const Side& side = is_b ? sides.b : sides.a;
      Cell of_side = same;
      of_side.actor = side.actor;
      of_side.is_b = is_b;
      of_side.side = is_b ? b : a;
      of_side.instead = side.version;
      of_side.replaces_same = sides.a.version.has_value() || sides.b.version.has_value();
      of_side.program = side.program;
      result.push_back(std::move(of_side));
    }
  }
  return result;
}

bool UsesNftables(const Cell& cell) {
  return cell.pair.proxy.mode == ProxyMode::kNftables ||
         cell.from.proxy.mode == ProxyMode::kNftables;
}

bool HasOwnCells(Path path) {
  return path == Path::kToNftables || path == Path::kFromNftables || path == Path::kProxyCleanup;
}

bool MovesBetweenVersions(Path path) {
  return path != Path::kBoot && path != Path::kFlush && path != Path::kToNft && !HasOwnCells(path);
}

std::vector<Path> MainPaths() {
  return {Path::kBoot,       Path::kUpgradeKubeletFirst, Path::kFlush,
          Path::kToNftables, Path::kFromNftables,        Path::kProxyCleanup};
}

std::vector<Cell> DefaultCells(const std::vector<Path>& paths) {
  std::vector<Path> of_both = paths;
  std::erase_if(of_both, HasOwnCells);
  Cells cells;
  cells.AddOnEach(of_both, AllowedPairs());
  std::vector<Path> of_the_same = of_both;
  std::erase_if(of_the_same, [](Path path) { return path != Path::kBoot && path != Path::kFlush; });
  cells.AddOnEach(of_the_same, PairsOfTheSameRules());
  cells.AddOnEach(of_both, OtherPairs());
  cells.AddOnEach(of_both, OtherModes());
  cells.AddOwn(paths, CompanyRows());
  cells.AddOwn(paths, ModeRows());
  return std::move(cells).Take();
}

std::vector<Cell> AllCells(const std::vector<Path>& paths) {
  std::vector<Row> rows;
  for (const Version kubelet : AllVersions()) {
    for (const Version proxy : AllVersions()) {
      const auto before = [](Version version) {
        return std::max(version.minor - 1, kOldest.minor);
      };
      rows.push_back(
          {Minors(kubelet.minor, proxy.minor), Minors(before(kubelet), before(proxy)), ""});
    }
  }
  std::vector<Path> of_all = paths;
  std::erase_if(of_all, HasOwnCells);
  Cells cells;
  cells.AddOnEach(of_all, rows);
  cells.AddOwn(paths, ModeRows());
  return std::move(cells).Take();
}

}  // namespace kipt::skew
