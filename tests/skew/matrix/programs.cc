// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
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

// Where the harness itself looks for a program.
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

std::vector<IptablesMode> ModesOf(const Cell& cell) {
  if (cell.path == Path::kToNft) return {IptablesMode::kNft, IptablesMode::kLegacy};
  return {cell.mode};
}

// Each is there where one of its paths is. By what is missing, where it is to be had.
class Search {
 public:
  explicit Search(const std::function<bool(const std::string&)>& can_run) : can_run_(can_run) {}

  void OfCell(const Cell& cell) {
    OneOf({"ip"}, Package("iproute2"));
    if (cell.actor == Actor::kAgent) OneOf({cell.program}, "name it with --agent, --a or --b");
    for (const IptablesMode mode : ModesOf(cell)) {
      for (const std::string& path : IptablesPrograms(mode)) OneOf({path}, Package("iptables"));
    }
    if (cell.pair.proxy.mode == ProxyMode::kIpvs || cell.from.proxy.mode == ProxyMode::kIpvs) {
      OneOf({kIpset}, Package("ipset"));
    }
    if (UsesNftables(cell)) OneOf({kNft}, Package("nftables"));
    if (cell.company == Company::kThirdParties) {
      Paths paths;
      for (const char* directory : kPluginDirectories) {
        paths.push_back(absl::StrCat(directory, "/portmap"));
      }
      OneOf(paths, Package("containernetworking-plugins"));
    }
  }

  absl::Status Result() const {
    if (missing_.empty()) return absl::OkStatus();
    std::vector<std::string> sentences;
    for (const auto& [source, programs] : missing_) {
      sentences.push_back(absl::StrCat(absl::StrJoin(programs, ", "), " (", source, ")"));
    }
    return absl::NotFoundError(absl::StrCat(
        "the chosen cells run programs that are missing: ", absl::StrJoin(sentences, "; "),
        ". Install them, or choose other cells with --cells"));
  }

 private:
  static std::string Package(const std::string& name) {
    return absl::StrCat("Debian package ", name);
  }

  void OneOf(const Paths& paths, const std::string& source) {
    if (!asked_.insert(paths.front()).second) return;
    if (std::any_of(paths.begin(), paths.end(), can_run_)) return;
    missing_[source].push_back(absl::StrJoin(paths, " or "));
  }

  const std::function<bool(const std::string&)>& can_run_;
  std::set<std::string> asked_;
  std::map<std::string, std::vector<std::string>> missing_;
};

}  // namespace

absl::Status HasPrograms(const std::vector<Cell>& cells,
                         const std::function<bool(const std::string& path)>& can_run) {
  Search search(can_run);
  for (const Cell& cell : cells) search.OfCell(cell);
  return search.Result();
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
