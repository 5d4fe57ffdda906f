// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/xtables_lock_watch.h"

#include <sys/inotify.h>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace kipt::agent {
namespace {

// Programs close the lock when their change is made. They open it for reading only.
constexpr uint32_t kFileEvents = IN_CLOSE_NOWRITE | IN_CLOSE_WRITE;
// The next program creates a lock file that was removed. Other events of the directory, which is
// usually the busy /run, are not asked for.
constexpr uint32_t kDirectoryEvents =
    IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

// The file at the path, and earlier ones, which a program may still hold open.
constexpr size_t kMostFiles = 4;

}  // namespace

absl::StatusOr<XtablesLockWatch> XtablesLockWatch::Start(const std::filesystem::path& lock_path) {
  absl::StatusOr<Inotify> inotify = Inotify::Create();
  if (!inotify.ok()) return inotify.status();
  XtablesLockWatch watch(lock_path, *std::move(inotify));
  if (absl::Status status = watch.Arm(); !status.ok()) return status;
  return watch;
}

absl::StatusOr<XtablesLockWatch::Use> XtablesLockWatch::Take() {
  Use use;
  absl::Status status = inotify_.Take([&](const inotify_event& event) {
    if ((event.mask & IN_Q_OVERFLOW) != 0) ++use.lost;
    use.closed = IsAboutTheLock(event) || use.closed;
  });
  if (status.ok() && use.any()) status = Arm();
  if (!status.ok()) return status;
  return use;
}

bool XtablesLockWatch::IsAboutTheLock(const inotify_event& event) {
  if (event.wd == directory_) {
    return NameOf(event).empty() || NameOf(event) == lock_path_.filename().string();
  }
  const auto file = absl::c_find(files_, event.wd);
  if (file == files_.end()) return false;
  if ((event.mask & IN_IGNORED) != 0) files_.erase(file);
  return true;
}

absl::Status XtablesLockWatch::Arm() {
  const absl::StatusOr<int> directory =
      inotify_.Watch(lock_path_.parent_path().string(), kDirectoryEvents);
  if (absl::IsResourceExhausted(directory.status())) return directory.status();
  if (directory_ && (!directory.ok() || *directory != *directory_)) inotify_.GiveUp(*directory_);
  directory_ = directory.ok() ? std::optional<int>(*directory) : std::nullopt;
  const absl::StatusOr<int> file = inotify_.Watch(lock_path_.string(), kFileEvents);
  if (!file.ok()) {
    if (absl::IsResourceExhausted(file.status()) || absl::IsPermissionDenied(file.status())) {
      return file.status();
    }
    if (directory.ok()) return absl::OkStatus();
    if (absl::IsPermissionDenied(directory.status())) return directory.status();
    return absl::NotFoundError(absl::StrCat(
        "there is neither ", lock_path_.string(),
        " nor its directory, so the use of iptables-legacy cannot be noticed. Mount the host's "
        "file here, as the kube-proxy DaemonSet does (hostPath of type FileOrCreate)"));
  }
  std::erase(files_, *file);
  files_.push_back(*file);
  if (files_.size() > kMostFiles) {
    inotify_.GiveUp(files_.front());
    files_.erase(files_.begin());
  }
  return absl::OkStatus();
}

}  // namespace kipt::agent
