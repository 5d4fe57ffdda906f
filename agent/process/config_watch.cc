// SPDX-License-Identifier: Apache-2.0
#include "agent/process/config_watch.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace kipt::agent {
namespace {

// Writing a file begins with IN_CREATE and ends with IN_CLOSE_WRITE. Links, directories and a
// second name for a file only have IN_CREATE. IN_MOVE_SELF: the directory above may be unreadable.
// The end of a watched file or directory is IN_IGNORED, which is always sent.
constexpr uint32_t kFileEvents = IN_CLOSE_WRITE | IN_MOVE_SELF;
constexpr uint32_t kNameEvents = kFileEvents | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO;

// File times advance with the kernel's tick, 1 to 10 ms (since Linux 6.13 some are finer).
constexpr absl::Duration kTick = absl::Milliseconds(20);

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
  // The others are no unfinished files: a link, a second name, or already removed.
  unfinished_.clear();
  if (*identity == last_ && !last_was_fresh_) return false;
  Remember(*identity);
  return true;
}

// Whether the event concerns the way to the file.
bool ConfigWatch::Notice(const inotify_event& event) {
  if (event.wd == -1) {  // events were lost
    unfinished_.clear();
    return true;
  }
  const Entry entry(event.wd, NameOf(event));
  if (!way_.watched.contains(entry)) return false;
  if (event.mask == IN_CREATE) {  // with IN_ISDIR for a directory
    unfinished_.insert(entry);
  } else {
    unfinished_.erase(entry);
  }
  return true;
}

// Watches each directory before a name is looked up in it, so that no change is missed.
absl::StatusOr<WalkedPath> ConfigWatch::WatchDirectories(Way& way) {
  absl::Status status;
  bool begun = false;
  WalkedPath walked = WalkPath("/", path_, [&](const OwnedFd& directory, const std::string& name) {
    begun = true;
    const absl::StatusOr<int> watch = Watch(directory, kNameEvents);
    way.blind = absl::IsPermissionDenied(watch.status());
    if (watch.ok()) {
      way.watched.insert({{*watch, ""}, {*watch, name}});
      way.file.emplace(*watch, name);
    } else if (!way.blind) {
      status = watch.status();
    }
    return status.ok();
  });
  if (!status.ok()) return status;
  if (begun || walked.error == 0) return walked;
  return absl::ErrnoToStatus(walked.error, absl::StrCat("searching for ", path_));
}

// Watches the current way to the file, and nothing else.
absl::StatusOr<ConfigWatch::Identity> ConfigWatch::Arm() {
  Way way;
  const absl::StatusOr<WalkedPath> walked = WatchDirectories(way);
  if (!walked.ok()) return walked.status();
  struct stat about = {};  // stays empty without a file
  fstat(walked->file.get(), &about);
  if (S_ISREG(about.st_mode)) {
    const absl::StatusOr<int> watch = Watch(walked->file, kFileEvents);
    if (watch.ok()) {
      way.watched.emplace(*watch, "");
      way.blind = false;
    } else if (!absl::IsPermissionDenied(watch.status())) {
      return watch.status();
    }
  }
  if (way.blind) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the changes of ", path_, " cannot be noticed: let the agent's user read its directory"));
  }
  if (!S_ISREG(about.st_mode) || about.st_nlink != 1) way.file.reset();
  for (const Entry& entry : way_.watched) {
    if (entry.second.empty() && !way.watched.contains(entry)) inotify_.GiveUp(entry.first);
  }
  way_ = std::move(way);
  return Identity{.error = walked->error,
                  .device = about.st_dev,
                  .inode = about.st_ino,
                  .size = about.st_size,
                  .modified = absl::TimeFromTimespec(about.st_mtim),
                  .changed = absl::TimeFromTimespec(about.st_ctim)};
}

absl::StatusOr<int> ConfigWatch::Watch(const OwnedFd& what, uint32_t events) {
  return inotify_.Watch(absl::StrCat("/proc/self/fd/", what.get()), events);
}

void ConfigWatch::Remember(const Identity& identity) {
  last_ = identity;
  const absl::Duration age = absl::Now() - identity.changed;
  last_was_fresh_ = absl::AbsDuration(age) < kTick;
}

}  // namespace kipt::agent
