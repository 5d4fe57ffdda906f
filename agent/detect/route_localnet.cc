// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/route_localnet.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/process/read_file.h"

namespace kipt::agent {
namespace {

constexpr absl::string_view kAll = "all";

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};

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
  const std::unique_ptr<DIR, DirectoryCloser> directory(opendir(conf_directory.c_str()));
  if (directory == nullptr) return Failure(errno, conf_directory);
  const absl::StatusOr<std::optional<bool>> all = ReadSetting(conf_directory, kAll);
  if (!all.ok()) return all.status();
  if (all->value_or(false)) return std::vector<std::string>{std::string(kAll)};
  std::vector<std::string> exposed;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    const absl::string_view name = entry->d_name;
    if (name == "." || name == ".." || name == kAll || name == "default" || name == "lo") continue;
    const absl::StatusOr<std::optional<bool>> own = ReadSetting(conf_directory, name);
    if (!own.ok()) return own.status();
    if (own->value_or(false)) exposed.emplace_back(name);
  }
  if (errno != 0) return Failure(errno, conf_directory);
  std::sort(exposed.begin(), exposed.end());
  return exposed;
}

}  // namespace kipt::agent
