// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/host_program.h"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/process/files.h"

namespace kipt::agent {
namespace {

// The order of systemd's default PATH, which is kubelet's.
constexpr const char* kDirectories[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                        "/usr/bin",        "/sbin",          "/bin"};

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::string ErrorText(int error) { return std::generic_category().message(error); }

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

HostProgram Recognise(const WalkedPath& resolved) {
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
  for (const auto& [own, init] : {std::pair(paths.own_mount_namespace, paths.init_mount_namespace),
                                  std::pair(paths.own_root, paths.init_root)}) {
    struct stat ours = {};
    struct stat theirs = {};
    if (stat(own.c_str(), &ours) != 0 || stat(init.c_str(), &theirs) != 0) {
      return {"", absl::StrCat("whether this process sees the host's files is not known: ", init,
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
    const WalkedPath resolved =
        WalkPath(std::string(host_root), absl::StrCat(directory, "/", name));
    // Not there, as opposed to a link that leads nowhere.
    const bool absent =
        resolved.names.size() == 1 && (resolved.error == ENOENT || resolved.error == ENOTDIR);
    if (!absent) return Recognise(resolved);
  }
  return {.mode = std::nullopt,
          .text = absl::StrCat("no ", name, " in the host's ", absl::StrJoin(kDirectories, ", "))};
}

}  // namespace kipt::agent
