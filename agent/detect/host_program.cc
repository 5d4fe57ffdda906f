// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/host_program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace kipt::agent {
namespace {

// As the kernel's MAXSYMLINKS.
constexpr int kMaxLinks = 40;

// The order of systemd's default PATH, which is kubelet's.
constexpr const char* kDirectories[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                        "/usr/bin",        "/sbin",          "/bin"};

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::string ErrorText(int error) { return std::generic_category().message(error); }

// A path inside the root, and all the paths that its links named on the way.
struct Resolved {
  std::vector<std::string> names;  // the first is what was asked for, the last the file
  int error = 0;                   // errno; ENOENT where something on the way is not there
};

class Resolver {
 public:
  Resolver(absl::string_view root, std::string path) : root_(root) {
    if (root_ == "/") root_.clear();
    Push(path);
    result_.names.push_back(std::move(path));
  }

  Resolved Resolve() {
    while (!open_.empty() && result_.error == 0) Step();
    if (result_.error == 0) NameLast();
    return std::move(result_);
  }

 private:
  void Push(absl::string_view path) {
    const std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
    open_.insert(open_.begin(), parts.begin(), parts.end());
  }

  std::string Inside() const {
    return done_.empty() ? "/" : absl::StrCat("/", absl::StrJoin(done_, "/"));
  }
  std::string Outside() const { return absl::StrCat(root_, Inside()); }

  // Links of directories (/sbin -> usr/sbin) are no news.
  void NameLast() {
    if (result_.names.back() != Inside()) result_.names.push_back(Inside());
  }

  void Step() {
    const std::string part = open_.front();
    open_.pop_front();
    if (part == ".") return;
    if (part == "..") {
      if (!done_.empty()) done_.pop_back();
      return;
    }
    done_.push_back(part);
    struct stat about = {};
    if (lstat(Outside().c_str(), &about) != 0) {
      result_.error = errno;
    } else if (S_ISLNK(about.st_mode)) {
      Follow();
    } else if (!open_.empty() && !S_ISDIR(about.st_mode)) {
      result_.error = ENOTDIR;
    }
  }

  void Follow() {
    std::array<char, PATH_MAX> target;
    const ssize_t size = readlink(Outside().c_str(), target.data(), target.size());
    if (size < 0 || ++links_ > kMaxLinks) {
      result_.error = size < 0 ? errno : ELOOP;
      return;
    }
    const absl::string_view link(target.data(), static_cast<size_t>(size));
    if (open_.empty()) NameLast();
    done_.pop_back();
    if (absl::StartsWith(link, "/")) done_.clear();
    const bool last = open_.empty();
    Push(link);
    if (last) {
      result_.names.push_back(absl::StartsWith(link, "/") ? std::string(link)
                                                          : absl::StrCat(Inside(), "/", link));
    }
  }

  std::string root_;
  std::vector<std::string> done_;
  std::deque<std::string> open_;
  int links_ = 0;
  Resolved result_;
};

// What a name of a program promises. xtables-multi is that of 1.4 to 1.6, which knows no nft;
// xtables-compat-multi is what 1.6 and 1.7 called their nft.
std::optional<IptablesMode> ModeOfName(absl::string_view path) {
  const absl::string_view name = path.substr(path.rfind('/') + 1);
  for (const char* const nft :
       {"iptables-nft", "ip6tables-nft", "xtables-nft-multi", "xtables-compat-multi"}) {
    if (name == nft) return IptablesMode::kNft;
  }
  for (const char* const legacy :
       {"iptables-legacy", "ip6tables-legacy", "xtables-legacy-multi", "xtables-multi"}) {
    if (name == legacy) return IptablesMode::kLegacy;
  }
  return std::nullopt;
}

HostProgram Recognise(const Resolved& resolved) {
  HostProgram program = {.mode = IptablesMode::kUnknown,
                         .text = absl::StrJoin(resolved.names, " -> ")};
  if (resolved.error != 0) {
    absl::StrAppend(&program.text, ": ", ErrorText(resolved.error));
    return program;
  }
  // Where links disagree, what is really run decides: the last.
  for (auto name = resolved.names.rbegin(); name != resolved.names.rend(); ++name) {
    if (const std::optional<IptablesMode> mode = ModeOfName(*name)) {
      program.mode = *mode;
      return program;
    }
  }
  absl::StrAppend(&program.text, ": neither iptables-nft nor iptables-legacy by name");
  return program;
}

}  // namespace

HostRoot OwnHostRoot(const NamespacePaths& paths) {
  struct stat pid = {};
  if (stat(paths.own_pid_namespace.c_str(), &pid) != 0) {
    return {"", absl::StrCat(paths.own_pid_namespace, ": ", ErrorText(errno))};
  }
  if (pid.st_ino != paths.initial_pid_namespace) {
    return {"", "this process is in a container (another pid namespace); give --host-root"};
  }
  const std::array<std::array<const std::string*, 2>, 2> pairs = {
      {{&paths.own_mount_namespace, &paths.init_mount_namespace},
       {&paths.own_root, &paths.init_root}}};
  for (const auto& [own, init] : pairs) {
    struct stat ours = {};
    struct stat theirs = {};
    if (stat(own->c_str(), &ours) != 0 || stat(init->c_str(), &theirs) != 0) {
      return {"", absl::StrCat("whether this process sees the host's files is not known: ", *init,
                               ": ", ErrorText(errno), "; give --host-root")};
    }
    if (!SameFile(ours, theirs)) {
      return {"", "this process sees other files than process 1; give --host-root"};
    }
  }
  return {"/", ""};
}

HostProgram FindHostProgram(absl::string_view host_root, netlink::Family family) {
  const char* const name = family == netlink::Family::kIPv4 ? "iptables" : "ip6tables";
  for (const char* const directory : kDirectories) {
    const Resolved resolved = Resolver(host_root, absl::StrCat(directory, "/", name)).Resolve();
    // Not there, as opposed to a link that leads nowhere.
    const bool absent =
        resolved.names.size() == 1 && (resolved.error == ENOENT || resolved.error == ENOTDIR);
    if (!absent) return Recognise(resolved);
  }
  return {.mode = std::nullopt,
          .text = absl::StrCat("no ", name, " in the host's ", absl::StrJoin(kDirectories, ", "))};
}

}  // namespace kipt::agent
