// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_legacy_monitor.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/process/files.h"
#include "agent/xtables/iptables_legacy_tables.h"

namespace kipt::agent {
namespace {

using netlink::RulesetChanges;

// Whoever changed something closes the lock when it is done. Programs open it for reading only.
constexpr uint32_t kFileEvents = IN_CLOSE_NOWRITE | IN_CLOSE_WRITE;
// A lock file that was removed is made anew by the next one who wants it. Nothing else that happens
// in the directory is of interest: /run is a busy place, and its closes would wake us for nothing.
constexpr uint32_t kDirectoryEvents =
    IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

// Files that were at the path before and are still there under no name or another: those who opened
// one of them before may still be at work.
constexpr size_t kMostFiles = 4;

class IptablesLegacyMonitor : public netlink::Monitor {
 public:
  IptablesLegacyMonitor(const std::string& lock_path, Inotify inotify,
                        IptablesLegacyTableReader reader)
      : lock_path_(lock_path),
        directory_path_(std::filesystem::path(lock_path).parent_path().string()),
        lock_name_(std::filesystem::path(lock_path).filename().string()),
        inotify_(std::move(inotify)),
        reader_(std::move(reader)) {
    if (directory_path_.empty()) directory_path_.assign(1, '.');
  }

  absl::Status Start() {
    if (absl::Status status = Arm(); !status.ok()) return status;
    return Look().status();
  }

  int fd() const override { return inotify_.fd(); }
  absl::StatusOr<RulesetChanges> Drain() override;

 private:
  bool IsAboutTheLock(const inotify_event& event);
  absl::Status Arm();
  absl::StatusOr<bool> Look();

  std::string lock_path_;
  std::string directory_path_;
  std::string lock_name_;
  Inotify inotify_;
  IptablesLegacyTableReader reader_;
  std::optional<int> directory_;
  std::vector<int> files_;  // newest last
  // Empty: not known.
  std::optional<IptablesLegacyTables> last_;
};

absl::StatusOr<RulesetChanges> IptablesLegacyMonitor::Drain() {
  RulesetChanges changes;
  bool used = false;
  const absl::Status taken = inotify_.Take([&](const inotify_event& event) {
    if ((event.mask & IN_Q_OVERFLOW) != 0) ++changes.lost;
    used = IsAboutTheLock(event) || used;
  });
  if (!taken.ok()) return taken;
  if (!used && changes.lost == 0) return changes;
  // First the watches, then the look: who closes a new lock file before it is watched has made its
  // changes before they are looked for.
  if (absl::Status status = Arm(); !status.ok()) return status;
  const absl::StatusOr<bool> changed = Look();
  if (!changed.ok()) return changed.status();
  if (*changed || changes.lost > 0) changes.count = changes.others = 1;
  return changes;
}

bool IptablesLegacyMonitor::IsAboutTheLock(const inotify_event& event) {
  if (event.wd == directory_) {
    if ((event.mask & IN_IGNORED) != 0) directory_.reset();
    return NameOf(event).empty() || NameOf(event) == lock_name_;
  }
  const auto file = std::find(files_.begin(), files_.end(), event.wd);
  if (file == files_.end()) return false;
  if ((event.mask & IN_IGNORED) != 0) files_.erase(file);
  return true;
}

// Watches what stands at the two paths now. Where that is what stood there before, it changes
// nothing.
absl::Status IptablesLegacyMonitor::Arm() {
  const absl::StatusOr<int> directory = inotify_.Watch(directory_path_, kDirectoryEvents);
  if (absl::IsResourceExhausted(directory.status())) return directory.status();
  if (directory_.has_value() && (!directory.ok() || *directory != *directory_)) {
    inotify_.GiveUp(*directory_);
  }
  directory_ = directory.ok() ? std::optional<int>(*directory) : std::nullopt;
  const absl::StatusOr<int> file = inotify_.Watch(lock_path_, kFileEvents);
  if (!file.ok()) {
    if (absl::IsResourceExhausted(file.status()) || absl::IsPermissionDenied(file.status())) {
      return file.status();
    }
    if (directory.ok()) return absl::OkStatus();
    if (absl::IsPermissionDenied(directory.status())) return directory.status();
    return absl::NotFoundError(absl::StrCat(
        "there is neither ", lock_path_, " nor its directory, so nothing tells when legacy ",
        "iptables is used: mount the host's file here, as the kube-proxy DaemonSet does (hostPath "
        "of type FileOrCreate)"));
  }
  files_.erase(std::remove(files_.begin(), files_.end(), *file), files_.end());
  files_.push_back(*file);
  if (files_.size() > kMostFiles) {
    inotify_.GiveUp(files_.front());
    files_.erase(files_.begin());
  }
  return absl::OkStatus();
}

// Whether the tables differ, or may differ, from those of the last look.
absl::StatusOr<bool> IptablesLegacyMonitor::Look() {
  absl::StatusOr<IptablesLegacyTables> tables = reader_.Read();
  if (absl::IsAborted(tables.status())) {
    last_.reset();
    return true;
  }
  if (!tables.ok()) return tables.status();
  const bool changed =
      last_ != *tables || std::any_of(tables->begin(), tables->end(), [](const auto& table) {
        return !table.second.content.has_value();
      });
  last_ = *std::move(tables);
  return changed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<netlink::Monitor>> NewIptablesLegacyMonitor(
    const std::string& lock_path, const std::string& table_names_path) {
  absl::StatusOr<Inotify> inotify = Inotify::Create();
  if (!inotify.ok()) return inotify.status();
  absl::StatusOr<IptablesLegacyTableReader> reader =
      IptablesLegacyTableReader::Open(table_names_path);
  if (!reader.ok()) return reader.status();
  auto monitor =
      std::make_unique<IptablesLegacyMonitor>(lock_path, *std::move(inotify), *std::move(reader));
  if (absl::Status status = monitor->Start(); !status.ok()) return status;
  return monitor;
}

}  // namespace kipt::agent
