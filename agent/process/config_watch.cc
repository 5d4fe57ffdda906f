// SPDX-License-Identifier: Apache-2.0
#include "agent/process/config_watch.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/process/owned_fd.h"

namespace kipt::agent {
namespace {

// Names that come and go. IN_CREATE of a file is the beginning of its writing, IN_CLOSE_WRITE the
// end; of links and directories, and of a second name for a file, IN_CREATE is all there is.
constexpr uint32_t kNameEvents = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                                 IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_MASK_ADD;
constexpr uint32_t kFileEvents = IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF | IN_MASK_ADD;

// As the kernel: namei(7), MAXSYMLINKS.
constexpr int kMostLinks = 40;

// File systems take their times from a clock that moves with the kernel's tick, 1 to 10 ms (since
// Linux 6.13 some are finer).
constexpr absl::Duration kTick = absl::Milliseconds(20);

int64_t Nanoseconds(const timespec& time) {
  return absl::ToUnixNanos(absl::TimeFromTimespec(time));
}

std::deque<std::string> ComponentsOf(absl::string_view path) {
  const std::vector<std::string> names = absl::StrSplit(path, '/', absl::SkipEmpty());
  std::deque<std::string> components;
  for (const std::string& name : names) {
    if (name != ".") components.push_back(name);
  }
  return components;
}

}  // namespace

// One way from the root (or the current directory) to the file, step by step as the kernel goes it.
// Each directory is watched before anything is looked up in it, and by descriptor, so that no
// change falls between.
class ConfigWatch::Walk {
 public:
  explicit Walk(Inotify* inotify) : inotify_(inotify) {}

  absl::Status Go(const std::string& path);

  std::map<int, std::set<std::string>> watched;
  std::optional<Entry> file;
  Identity identity;

 private:
  absl::Status Step(const std::string& name);
  absl::Status Follow(const OwnedFd& link);
  absl::Status Arrive();
  absl::StatusOr<std::optional<int>> Watch(const OwnedFd& what, uint32_t events);
  void StartAt(absl::string_view path) {
    at_ = OwnedFd(open(absl::StartsWith(path, "/") ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  }

  Inotify* inotify_;
  OwnedFd at_;
  std::deque<std::string> ahead_;
  int links_ = 0;
  // Of the last step; none where the directory may not be read.
  std::optional<Entry> entry_;
  // Neither the directory of the last step nor the file could be watched.
  bool blind_ = false;
};

absl::Status ConfigWatch::Walk::Go(const std::string& path) {
  ahead_ = ComponentsOf(path);
  StartAt(path);
  if (!at_.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("looking for ", path));
  while (!ahead_.empty() && identity.error == 0) {
    const std::string name = std::move(ahead_.front());
    ahead_.pop_front();
    if (absl::Status status = Step(name); !status.ok()) return status;
  }
  if (identity.error == 0) {
    if (absl::Status status = Arrive(); !status.ok()) return status;
  }
  if (!blind_) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the changes of ", path,
                   " cannot be seen: let the agent's user read the directory that it is in"));
}

absl::Status ConfigWatch::Walk::Step(const std::string& name) {
  entry_.reset();
  if (name != "..") {
    absl::StatusOr<std::optional<int>> watch =
        Watch(at_, ahead_.empty() ? kNameEvents | IN_CLOSE_WRITE : kNameEvents);
    if (!watch.ok()) return watch.status();
    blind_ = !watch->has_value();
    if (watch->has_value()) {
      watched[**watch].insert(name);
      entry_.emplace(**watch, name);
    }
  }
  OwnedFd next(openat(at_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat about = {};
  if (!next.valid() || fstat(next.get(), &about) != 0) {
    identity.error = errno;
    return absl::OkStatus();
  }
  if (S_ISLNK(about.st_mode)) return Follow(next);
  at_ = std::move(next);
  return absl::OkStatus();
}

absl::Status ConfigWatch::Walk::Follow(const OwnedFd& link) {
  std::array<char, PATH_MAX> target;
  const ssize_t size = readlinkat(link.get(), "", target.data(), target.size());
  if (size < 0 || ++links_ > kMostLinks) {
    identity.error = size < 0 ? errno : ELOOP;
    return absl::OkStatus();
  }
  const absl::string_view path(target.data(), static_cast<size_t>(size));
  const std::deque<std::string> components = ComponentsOf(path);
  ahead_.insert(ahead_.begin(), components.begin(), components.end());
  if (absl::StartsWith(path, "/")) StartAt(path);
  return absl::OkStatus();
}

// At the end of the path, whatever it is that stands there.
absl::Status ConfigWatch::Walk::Arrive() {
  struct stat about = {};
  if (fstat(at_.get(), &about) != 0) {
    identity.error = errno;
    return absl::OkStatus();
  }
  if (S_ISREG(about.st_mode)) {
    const absl::StatusOr<std::optional<int>> watch = Watch(at_, kFileEvents);
    if (!watch.ok()) return watch.status();
    if (watch->has_value()) {
      watched[**watch];
      blind_ = false;
    }
    if (about.st_nlink == 1) file = entry_;
  }
  identity = {.device = about.st_dev,
              .inode = about.st_ino,
              .size = about.st_size,
              .modified_ns = Nanoseconds(about.st_mtim),
              .changed_ns = Nanoseconds(about.st_ctim)};
  return absl::OkStatus();
}

// The number of the watch; none where `what` may not be read.
absl::StatusOr<std::optional<int>> ConfigWatch::Walk::Watch(const OwnedFd& what, uint32_t events) {
  const absl::StatusOr<int> watch =
      inotify_->Watch(absl::StrCat("/proc/self/fd/", what.get()), events);
  if (watch.ok()) return std::optional<int>(*watch);
  if (absl::IsPermissionDenied(watch.status())) return std::optional<int>();
  return watch.status();
}

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
  Happened happened;
  const absl::Status taken =
      inotify_.Take([&](const InotifyEvent& event) { Notice(event, happened); });
  if (!taken.ok()) return taken;
  if (!happened.anything) return false;
  const absl::StatusOr<Identity> identity = Arm();
  if (!identity.ok()) return identity.status();
  if (file_.has_value() && unfinished_.count(*file_) != 0) return false;
  // What was made is no file that somebody is writing: a link, a second name, or gone again.
  const bool finished = happened.finished || !unfinished_.empty();
  unfinished_.clear();
  if (!finished || (*identity == last_ && !last_was_fresh_)) return false;
  Remember(*identity);
  return true;
}

void ConfigWatch::Notice(const InotifyEvent& event, Happened& happened) {
  if ((event.mask & IN_Q_OVERFLOW) != 0) {
    happened = {.anything = true, .finished = true};
    unfinished_.clear();
    return;
  }
  const auto watched = watched_.find(event.watch);
  if (watched == watched_.end()) return;
  if (event.name.empty()) {
    happened = {.anything = true, .finished = true};
    const bool is_file = watched->second.empty();
    if (is_file && file_.has_value()) unfinished_.erase(*file_);
    return;
  }
  const Entry entry(event.watch, event.name);
  if (watched->second.count(entry.second) == 0) return;
  happened.anything = true;
  if ((event.mask & IN_CREATE) != 0 && (event.mask & IN_ISDIR) == 0) {
    unfinished_.insert(entry);
  } else {
    happened.finished = true;
    unfinished_.erase(entry);
  }
}

// Watches the way to the file as it is now, and nothing else.
absl::StatusOr<ConfigWatch::Identity> ConfigWatch::Arm() {
  Walk walk(&inotify_);
  if (absl::Status status = walk.Go(path_); !status.ok()) return status;
  for (const auto& [watch, names] : watched_) {
    if (walk.watched.count(watch) == 0) inotify_.GiveUp(watch);
  }
  watched_ = std::move(walk.watched);
  file_ = std::move(walk.file);
  return walk.identity;
}

void ConfigWatch::Remember(const Identity& identity) {
  last_ = identity;
  const absl::Duration age = absl::Now() - absl::FromUnixNanos(identity.changed_ns);
  last_was_fresh_ = identity.error == 0 && absl::AbsDuration(age) < kTick;
}

}  // namespace kipt::agent
