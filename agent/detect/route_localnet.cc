// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/route_localnet.h"

#include <cerrno>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/process/read_file.h"

namespace kipt::agent {
namespace {

constexpr absl::string_view kAll = "all";

absl::Status Failure(int error, absl::string_view path) {
  return absl::ErrnoToStatus(error, absl::StrCat("reading ", path));
}

// Nothing where the interface has gone since it was listed.
absl::StatusOr<std::optional<bool>> ReadSetting(const std::string& conf_directory,
                                                absl::string_view interface) {
  const std::string path = absl::StrCat(conf_directory, "/", interface, "/route_localnet");
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status()) && interface != kAll) return std::optional<bool>();
  if (!text.ok()) return text.status();
  int value = 0;
  if (absl::SimpleAtoi(*text, &value)) return std::optional<bool>(value != 0);
  return Failure(EINVAL, path);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadRouteLocalnet(const std::string& conf_directory) {
  std::vector<std::string> names;
  if (const int error = ListDirectory(conf_directory, names); error != 0) {
    return Failure(error, conf_directory);
  }
  const absl::StatusOr<std::optional<bool>> all = ReadSetting(conf_directory, kAll);
  if (!all.ok()) return all.status();
  if (all->value_or(false)) return std::vector<std::string>{std::string(kAll)};
  std::vector<std::string> exposed;
  for (const std::string& name : names) {
    if (name == kAll || name == "lo") continue;
    const absl::StatusOr<std::optional<bool>> own = ReadSetting(conf_directory, name);
    if (!own.ok()) return own.status();
    if (own->value_or(false)) exposed.push_back(name);
  }
  return exposed;
}

}  // namespace kipt::agent
