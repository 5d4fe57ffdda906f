// SPDX-License-Identifier: Apache-2.0
#include "agent/process/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <mntent.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <filesystem>
#include <memory>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace kipt::agent {
namespace {

// As the kernel's MAXSYMLINKS.
constexpr int kMostLinks = 40;

class Walk {
 public:
  Walk(const std::string& root, const BeforeLookup& before) : root_(root), before_(before) {}

  WalkedPath Go(const std::string& path) {
    result_.names.push_back(path);
    if (!absl::StartsWith(path, "/")) Begin(".");
    Take(path);
    while (!ahead_.empty() && result_.error == 0) {
      std::string name = std::move(ahead_.front());
      ahead_.pop_front();
      if (name == ".") continue;
      if (before_ != nullptr && !before_(fds_.back(), name)) {
        result_.error = ECANCELED;
      } else if (name != "..") {
        Enter(std::move(name));
      } else if (!names_.empty()) {
        names_.pop_back();
        fds_.pop_back();
      } else if (!in_root_) {
        Arrive(OwnedFd(openat(fds_.back().get(), "..", O_PATH | O_CLOEXEC)));
      }
    }
    if (result_.error != 0) return std::move(result_);
    NameEnd(Inside());
    result_.file = std::move(fds_.back());
    return std::move(result_);
  }

 private:
  void Begin(const std::string& directory) {
    names_.clear();
    fds_.clear();
    Arrive(OwnedFd(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
  }

  // `path` comes before the rest of the way.
  void Take(const std::string& path) {
    const std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
    ahead_.insert(ahead_.begin(), parts.begin(), parts.end());
    if (!absl::StartsWith(path, "/")) return;
    in_root_ = true;
    Begin(root_);
  }

  void Arrive(OwnedFd fd) {
    if (!fd.valid()) result_.error = errno;
    fds_.push_back(std::move(fd));
  }

  std::string Inside() const { return absl::StrCat("/", absl::StrJoin(names_, "/")); }

  // Only if it differs: links of directories (/sbin -> usr/sbin) are not recorded.
  void NameEnd(std::string name) {
    if (result_.names.back() != name) result_.names.push_back(std::move(name));
  }

  void Enter(std::string name) {
    OwnedFd next(openat(fds_.back().get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat about = {};
    if (!next.valid() || fstat(next.get(), &about) != 0) {
      result_.error = errno;
    } else if (S_ISLNK(about.st_mode)) {
      Follow(next, name);
    } else if (!ahead_.empty() && !S_ISDIR(about.st_mode)) {
      result_.error = ENOTDIR;
    } else {
      names_.push_back(std::move(name));
      Arrive(std::move(next));
    }
  }

  void Follow(const OwnedFd& link, const std::string& name) {
    std::array<char, PATH_MAX> target;
    const ssize_t size = readlinkat(link.get(), "", target.data(), target.size());
    if (size == -1 || ++links_ > kMostLinks) {
      result_.error = size == -1 ? errno : ELOOP;
      return;
    }
    const std::string path(target.data(), static_cast<size_t>(size));
    if (ahead_.empty()) {
      const std::string directory = names_.empty() ? "" : Inside();
      NameEnd(absl::StrCat(directory, "/", name));
      const bool absolute = absl::StartsWith(path, "/");
      result_.names.push_back(absolute ? path : absl::StrCat(directory, "/", path));
    }
    Take(path);
  }

  const std::string& root_;
  const BeforeLookup& before_;
  // The directories from the root, or the current directory, to here; the first has no name.
  std::vector<std::string> names_;
  std::vector<OwnedFd> fds_;
  bool in_root_ = false;
  std::deque<std::string> ahead_;
  int links_ = 0;
  WalkedPath result_;
};

std::string ProcPath(const OwnedFd& fd) { return absl::StrCat("/proc/self/fd/", fd.get()); }

// A file that is open is there, even if it was removed meanwhile: only /proc may be missing.
absl::Status ReopenFailure(int error, absl::string_view shown) {
  if (error != ENOENT) return ReadFailure(error, shown);
  return absl::UnavailableError(absl::StrCat("reading ", shown, ": /proc is not mounted"));
}

// `shown` appears in messages.
absl::StatusOr<std::string> ReadFileAs(const std::string& shown, const std::string& path,
                                       size_t most) {
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return ReadFailure(errno, shown);
  return ReadToEnd(file.get(), shown, most);
}

bool IsWithin(absl::string_view path, absl::string_view directory) {
  return absl::ConsumePrefix(&path, directory) && (path.empty() || path[0] == '/');
}

// A volume that parts of a node are mounted into lacks some of these, and an image has no process.
bool IsNodesRoot(const std::string& directory) {
  return absl::c_all_of(std::array{"/bin", "/proc/self", "/tmp"}, [&](const char* name) {
    struct stat about = {};
    return lstat((directory + name).c_str(), &about) == 0;
  });
}

// The mount points at and below `root`; none if the whole node is mounted there.
absl::StatusOr<std::vector<std::string>> MountsBelow(const std::string& root,
                                                     const std::string& mounts) {
  FILE* const list = setmntent(mounts.c_str(), "re");
  if (list == nullptr) return ReadFailure(errno, mounts);
  const absl::Cleanup close = [list] { endmntent(list); };
  std::vector<std::string> below;
  mntent entry = {};
  std::array<char, 16384> line;
  while (getmntent_r(list, &entry, line.data(), static_cast<int>(line.size())) != nullptr) {
    if (root == entry.mnt_dir && IsNodesRoot(root)) return std::vector<std::string>();
    if (IsWithin(entry.mnt_dir, root)) below.emplace_back(entry.mnt_dir);
  }
  return below;
}

}  // namespace

absl::Status ReadFailure(int error, absl::string_view path) {
  return absl::ErrnoToStatus(error, absl::StrCat("reading ", path));
}

absl::StatusOr<std::string> ReadToEnd(int fd, const std::string& name, size_t most) {
  std::string text;
  std::array<char, 16384> piece;
  for (;;) {
    const ssize_t count = read(fd, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ReadFailure(errno, name);
    if (count == 0) return text;
    text.append(piece.data(), static_cast<size_t>(count));
    if (text.size() > most) {
      return absl::ResourceExhaustedError(absl::StrCat(name, " is larger than ", most, " bytes"));
    }
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most) {
  return ReadFileAs(path, path, most);
}

bool ShowsProcNet(const std::string& path) {
  const std::string always = path.substr(0, path.rfind('/') + 1) + "dev";
  return access(always.c_str(), F_OK) == 0;
}

int ListDirectory(const std::string& path, std::vector<std::string>& names) {
  // Not std::filesystem's iterator, which ends the process where there is no memory.
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
  if (directory == nullptr) return errno;
  errno = 0;
  while (const dirent* entry = readdir(directory.get())) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error = errno;
  std::sort(names.begin(), names.end());
  return error;
}

WalkedPath WalkPath(const std::string& root, const std::string& path, const BeforeLookup& before) {
  return Walk(root, before).Go(path);
}

absl::Status NodeFiles::Check() const {
  std::error_code ignored;
  return std::filesystem::is_directory(root_, ignored) ? absl::OkStatus()
                                                       : ReadFailure(ENOENT, root_);
}

bool NodeFiles::IsDangling(const std::string& path) const {
  const WalkedPath located = WalkPath(root_, absl::StrCat("/", path));
  return located.error == ENOENT && located.names.size() > 1;
}

std::string NodeFiles::Shown(absl::string_view path) const {
  return absl::StrCat(absl::StripSuffix(root_, "/"), "/", absl::StripPrefix(path, "/"));
}

std::vector<std::string> NodeFiles::Hidden(absl::Span<const absl::string_view> paths,
                                           const std::string& mounts) const {
  std::error_code ignored;
  const std::string root = std::filesystem::canonical(root_, ignored).string();
  if (root == "/") return {};
  const absl::StatusOr<std::vector<std::string>> parts = MountsBelow(root, mounts);
  if (parts.ok() && parts->empty()) return {};
  std::vector<std::string> hidden;
  for (const absl::string_view path : paths) {
    // Where the path ends, which a link may have led out of its mount.
    std::string end;
    const auto note = [&](const OwnedFd& directory, const std::string& /*name*/) {
      end = std::filesystem::read_symlink(ProcPath(directory), ignored).string();
      return true;
    };
    if (WalkPath(root_, absl::StrCat("/", path), note).error == 0) continue;
    const bool mounted = parts.ok() && absl::c_any_of(*parts, [&](const std::string& part) {
                           return part != root && IsWithin(end, part);
                         });
    if (!mounted) hidden.push_back(Shown(path));
  }
  return hidden;
}

absl::StatusOr<std::string> NodeFiles::Read(const std::string& path, size_t most_bytes) const {
  const std::string shown = Shown(path);
  const WalkedPath located = WalkPath(root_, absl::StrCat("/", path));
  if (located.error != 0) return ReadFailure(located.error, shown);
  struct stat about = {};
  fstat(located.file.get(), &about);
  if (!S_ISREG(about.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(shown, " is no regular file"));
  }
  absl::StatusOr<std::string> text = ReadFileAs(shown, ProcPath(located.file), most_bytes);
  if (absl::IsNotFound(text.status())) return ReopenFailure(ENOENT, shown);
  if (absl::IsResourceExhausted(text.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat(shown, " is larger than ", most_bytes >> 20, " MiB"));
  }
  return text;
}

absl::StatusOr<std::set<std::string>> NodeFiles::List(
    const std::string& path, const std::function<bool(absl::string_view)>& is_wanted) const {
  const WalkedPath located = WalkPath(root_, absl::StrCat("/", path));
  if (located.error != 0) return ReadFailure(located.error, Shown(path));
  std::vector<std::string> all;
  if (const int error = ListDirectory(ProcPath(located.file), all); error != 0) {
    return ReopenFailure(error, Shown(path));
  }
  std::set<std::string> names;
  for (const std::string& name : all) {
    struct stat about = {};
    fstatat(located.file.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW);
    if (!S_ISDIR(about.st_mode) && is_wanted(name)) names.insert(name);
  }
  return names;
}

absl::StatusOr<Inotify> Inotify::Create() {
  OwnedFd fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (fd.valid()) return Inotify(std::move(fd));
  return absl::ErrnoToStatus(
      errno, errno == EMFILE ? "inotify_init1: too many descriptors of this process, or instances "
                               "of this user (raise fs.inotify.max_user_instances)"
                             : "inotify_init1");
}

absl::StatusOr<int> Inotify::Watch(const std::string& path, uint32_t mask) {
  const int watch = inotify_add_watch(fd_.get(), path.c_str(), mask);
  if (watch != -1) return watch;
  const int error = errno;
  return absl::ErrnoToStatus(
      error,
      absl::StrCat("watching ", path,
                   error == ENOSPC
                       ? ": too many watches of this user (raise fs.inotify.max_user_watches)"
                       : ""));
}

void Inotify::GiveUp(int watch) { inotify_rm_watch(fd_.get(), watch); }

absl::Status Inotify::Take(absl::FunctionRef<void(const inotify_event&)> handle) {
  // More than 16384 events, which the kernel queues by default.
  const auto buffer = std::make_unique_for_overwrite<std::array<char, size_t{1} << 20>>();
  const ssize_t count = read(fd_.get(), buffer->data(), buffer->size());
  if (count == -1 && errno != EAGAIN && errno != EINTR) {
    return absl::ErrnoToStatus(errno, "reading inotify events");
  }
  // The kernel returns whole events, each padded to the alignment of the next.
  for (const char* at = buffer->data(); at < buffer->data() + count;) {
    const auto& event = *reinterpret_cast<const inotify_event*>(at);
    handle(event);
    at += sizeof event + event.len;
  }
  return absl::OkStatus();
}

}  // namespace kipt::agent
