// SPDX-License-Identifier: Apache-2.0
#include "agent/process/config_watch.h"

#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace kipt::agent {
namespace {

// Names that come and go. IN_CREATE of a file is the beginning of its writing, IN_CLOSE_WRITE the
// end; of links and directories, and of a second name for a file, IN_CREATE is all there is.
constexpr uint32_t kNameEvents = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                                 IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_MASK_ADD;
constexpr uint32_t kFileEvents = IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF | IN_MASK_ADD;

// File systems take their times from a clock that moves with the kernel's tick, 1 to 10 ms (since
// Linux 6.13 some are finer).
constexpr absl::Duration kTick = absl::Milliseconds(20);

// In place of the number of a watch.
constexpr int kUnreadable = -1;

}  // namespace

absl::StatusOr<std::unique_ptr<ConfigWatch>> ConfigWatch::Create(std::string path) {
  if (path.empty()) return absl::InvalidArgumentError("there is no path to watch");
  absl::StatusOr<Inotify> inotify = Inotify::Create();
  if (!inotify.ok()) return inotify.status();
  auto watch = std::unique_ptr<ConfigWatch>(new ConfigWatch(std::move(path), *std::move(inotify)));
  const absl::StatusOr<Identity> identity = watch->Arm();
  if (!identity.ok()) return identity.status();
  watch->Remember(*identity);
  return watch;
}

absl::StatusOr<bool> ConfigWatch::Drain() {
  bool happened = false;
  const absl::Status taken =
      inotify_.Take([&](const inotify_event& event) { happened = Notice(event) || happened; });
  if (!taken.ok()) return taken;
  if (!happened) return false;
  const absl::StatusOr<Identity> identity = Arm();
  if (!identity.ok()) return identity.status();
  if (way_.file && unfinished_.contains(*way_.file)) return false;
  // What else was made is no file that somebody is writing: a link, a second name, or gone again.
  unfinished_.clear();
  if (*identity == last_ && !last_was_fresh_) return false;
  Remember(*identity);
  return true;
}

// Whether it is about the way to the file.
bool ConfigWatch::Notice(const inotify_event& event) {
  if ((event.mask & IN_Q_OVERFLOW) != 0) {
    unfinished_.clear();
    return true;
  }
  const auto watched = way_.watched.find(event.wd);
  if (watched == way_.watched.end()) return false;
  const auto& names = watched->second;
  const Entry entry(event.wd, NameOf(event));
  if (!entry.second.empty() && !names.contains(entry.second)) return false;
  if (entry.second.empty()) {
    const bool is_file = names.empty();
    if (is_file && way_.file) unfinished_.erase(*way_.file);
  } else if ((event.mask & IN_CREATE) != 0 && (event.mask & IN_ISDIR) == 0) {
    unfinished_.insert(entry);
  } else {
    unfinished_.erase(entry);
  }
  return true;
}

// Each directory is watched before anything is looked up in it, so that no change falls between.
absl::StatusOr<WalkedPath> ConfigWatch::WatchDirectories(Way& way) {
  absl::Status status;
  bool begun = false;
  WalkedPath walked =
      WalkPath("/", path_, [&](const OwnedFd& directory, const std::string& name, bool last) {
        begun = true;
        way.file.reset();
        if (name == "..") return true;
        const absl::StatusOr<int> watch =
            Watch(directory, last ? kNameEvents | IN_CLOSE_WRITE : kNameEvents);
        status = watch.status();
        if (!watch.ok()) return false;
        way.blind = *watch == kUnreadable;
        if (way.blind) return true;
        way.watched[*watch].insert(name);
        way.file.emplace(*watch, name);
        return true;
      });
  if (!status.ok()) return status;
  if (begun || walked.error == 0) return walked;
  return absl::ErrnoToStatus(walked.error, absl::StrCat("looking for ", path_));
}

// Watches the way to the file as it is now, and nothing else.
absl::StatusOr<ConfigWatch::Identity> ConfigWatch::Arm() {
  Way way;
  const absl::StatusOr<WalkedPath> walked = WatchDirectories(way);
  if (!walked.ok()) return walked.status();
  Identity identity = {.error = walked->error};
  struct stat about = {};
  if (identity.error == 0 && fstat(walked->file.get(), &about) != 0) identity.error = errno;
  if (S_ISREG(about.st_mode)) {
    const absl::StatusOr<int> watch = Watch(walked->file, kFileEvents);
    if (!watch.ok()) return watch.status();
    if (*watch != kUnreadable) {
      way.watched[*watch];
      way.blind = false;
    }
  }
  if (way.blind) {
    return absl::PermissionDeniedError(
        absl::StrCat("the changes of ", path_,
                     " cannot be seen: let the agent's user read the directory that it is in"));
  }
  if (identity.error == 0) {
    identity = {.device = about.st_dev,
                .inode = about.st_ino,
                .size = about.st_size,
                .modified = absl::TimeFromTimespec(about.st_mtim),
                .changed = absl::TimeFromTimespec(about.st_ctim)};
  }
  if (!S_ISREG(about.st_mode) || about.st_nlink != 1) way.file.reset();
  for (const auto& [watch, names] : way_.watched) {
    if (!way.watched.contains(watch)) inotify_.GiveUp(watch);
  }
  way_ = std::move(way);
  return identity;
}

// The number of the watch, or kUnreadable.
absl::StatusOr<int> ConfigWatch::Watch(const OwnedFd& what, uint32_t events) {
  absl::StatusOr<int> watch = inotify_.Watch(absl::StrCat("/proc/self/fd/", what.get()), events);
  if (absl::IsPermissionDenied(watch.status())) return kUnreadable;
  return watch;
}

void ConfigWatch::Remember(const Identity& identity) {
  last_ = identity;
  const absl::Duration age = absl::Now() - identity.changed;
  last_was_fresh_ = identity.error == 0 && absl::AbsDuration(age) < kTick;
}

}  // namespace kipt::agent
