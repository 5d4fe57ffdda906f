// SPDX-License-Identifier: Apache-2.0
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/bench/report.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string FirstLineOf(std::vector<std::string> argv) {
  const std::string out = RunProgram(std::move(argv)).out;
  return out.substr(0, out.find('\n'));
}

}  // namespace

json DescribeMachine() {
  utsname name = {};
  uname(&name);
  std::array<double, 1> load = {};
  getloadavg(load.data(), 1);
  return {{"kernel", name.release},
          {"cpus", sysconf(_SC_NPROCESSORS_ONLN)},
          {"programs", absl::StrCat(FirstLineOf({"iptables-nft", "-V"}), ", ",
                                    FirstLineOf({"nft", "--version"}))},
          {"libraries", absl::StrCat("glibc ", gnu_get_libc_version(), ", ", KIPT_LIBRARIES)},
          {"load", load[0]}};
}

absl::StatusOr<json> Collect(const std::string& parts, const std::string& stamp) {
  json figures = {{"stamp", stamp}};
  // In the order of their names, so that the same parts make the same file.
  std::map<std::string, json> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parts, error)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    json content =
        json::parse(std::string(std::istreambuf_iterator<char>(file), {}), nullptr, false);
    if (content.is_discarded()) {
      return absl::DataLossError(absl::StrCat(entry.path().string(), " is no JSON"));
    }
    files[entry.path().stem().string()] = std::move(content);
  }
  if (error) return absl::NotFoundError(absl::StrCat(parts, ": ", error.message()));
  for (auto& [stem, content] : files) {
    if (absl::StartsWith(stem, "incidents")) {
      figures["incidents"].push_back(std::move(content));
    } else if (absl::StartsWith(stem, "storms")) {
      figures["storms"].push_back(std::move(content));
    } else {
      figures[stem] = std::move(content);
    }
  }
  // What Google Benchmark says of the machine names it.
  if (figures.contains("micro"))
    figures["micro"] = json{{"benchmarks", figures["micro"]["benchmarks"]}};
  return figures;
}

}  // namespace kipt::testing
