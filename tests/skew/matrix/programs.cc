// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/matrix/run_cell.h"

namespace kipt::skew {
namespace {

using testing::IptablesMode;

// Where the harness itself searches for a program.
using Paths = std::vector<std::string>;

Paths IptablesPrograms(IptablesMode mode) {
  Paths paths;
  for (const testing::IpFamily family : testing::kBothFamilies) {
    for (const char* suffix : {"", "-save", "-restore"}) {
      paths.push_back(absl::StrCat("/usr/sbin/",
                                   family == testing::IpFamily::kIpv4 ? "iptables-" : "ip6tables-",
                                   testing::NameOf(mode), suffix));
    }
  }
  return paths;
}

}  // namespace

absl::Status HasPrograms(const std::vector<Cell>& cells,
                         const std::function<bool(const std::string& path)>& can_run) {
  std::set<std::string> asked;
  // By where it is to be had.
  std::map<std::string, std::vector<std::string>> missing;
  const auto need = [&](const std::string& path, const std::string& source) {
    if (asked.insert(path).second && !can_run(path)) missing[source].push_back(path);
  };
  for (const Cell& cell : cells) {
    need("ip", "Debian package iproute2");
    if (cell.actor == Actor::kAgent) need(cell.program, "name it with --agent, --a or --b");
    for (const IptablesMode mode : {IptablesMode::kNft, IptablesMode::kLegacy}) {
      if (mode != cell.mode && cell.path != Path::kToNft) continue;
      for (const std::string& path : IptablesPrograms(mode)) need(path, "Debian package iptables");
    }
    if (cell.pair.proxy.mode == ProxyMode::kIpvs || cell.from.proxy.mode == ProxyMode::kIpvs) {
      need(kIpset, "Debian package ipset");
    }
    if (UsesNftables(cell)) need(kNft, "Debian package nftables");
  }
  if (missing.empty()) return absl::OkStatus();
  std::vector<std::string> sentences;
  sentences.reserve(missing.size());
  for (const auto& [source, programs] : missing) {
    sentences.push_back(absl::StrCat(absl::StrJoin(programs, ", "), " (", source, ")"));
  }
  return absl::NotFoundError(absl::StrCat(
      "the chosen cells run programs that are missing: ", absl::StrJoin(sentences, "; "),
      ". Install them, or choose other cells with --cells"));
}

bool CanRunHere(const std::string& path) {
  if (path.find('/') != std::string::npos) return access(path.c_str(), X_OK) == 0;
  const char* directories = std::getenv("PATH");
  for (const absl::string_view directory :
       absl::StrSplit(directories == nullptr ? "" : directories, ':', absl::SkipEmpty())) {
    if (access(absl::StrCat(directory, "/", path).c_str(), X_OK) == 0) return true;
  }
  return false;
}

}  // namespace kipt::skew
