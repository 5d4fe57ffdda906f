// SPDX-License-Identifier: Apache-2.0
#include "agent/process/privileges.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/process/files.h"

namespace kipt::agent {
namespace {

struct Needed {
  unsigned int capability;
  absl::string_view name;  // as systemd and Kubernetes spell it, behind CAP_
  absl::string_view what_for;
};
constexpr Needed kNetAdmin = {CAP_NET_ADMIN, "NET_ADMIN",
                              "to look at netfilter's rules or write them"};
constexpr Needed kNetRaw = {CAP_NET_RAW, "NET_RAW",
                            "for iptables-legacy's socket (--iptables-mode=nft does without)"};

absl::Status Missing(const Needed& needed, bool keep_net_raw) {
  const absl::string_view all = keep_net_raw ? "CAP_NET_ADMIN CAP_NET_RAW" : "CAP_NET_ADMIN";
  const absl::string_view add = keep_net_raw ? "NET_ADMIN, NET_RAW" : "NET_ADMIN";
  return absl::PermissionDeniedError(absl::StrCat(
      "CAP_", needed.name, " is missing, ", needed.what_for,
      ": run as root, or have it given; in a systemd unit by CapabilityBoundingSet=", all,
      " and AmbientCapabilities=", all,
      "; in a Kubernetes container by securityContext: {runAsUser: 0, capabilities: {drop: [ALL], "
      "add: [",
      add, "]}}"));
}

// Without /proc nobody can tell; then the caller is believed.
absl::Status CheckAlone() {
  // ThreadSanitizer has a thread of its own.
  if (kBuiltWithASanitizer) return absl::OkStatus();
  std::vector<std::string> threads;
  if (ListDirectory("/proc/self/task", threads) == 0 && threads.size() > 1) {
    return absl::FailedPreconditionError(
        "capabilities are given up before there are other threads: those would keep theirs");
  }
  return absl::OkStatus();
}

absl::Status Failure(absl::string_view step) {
  return absl::InternalError(absl::StrCat(step, ": ", std::generic_category().message(errno)));
}
absl::Status Refused(absl::string_view step) {
  return Failure(absl::StrCat("giving up capabilities: ", step));
}
absl::Status LandlockFailure(absl::string_view step) {
  return Failure(absl::StrCat("forbidding writes to files (Landlock): ", step));
}

// linux/landlock.h of Linux 6.12. Older headers lack most of it; older kernels take zeros.
struct LandlockRuleset {
  uint64_t handled_access_fs = 0;
  uint64_t handled_access_net = 0;
  uint64_t scoped = 0;
};
constexpr uint64_t kTruncate = uint64_t{1} << 14;
constexpr uint64_t kScopeSignal = uint64_t{1} << 1;
constexpr long kAbiOfRefer = 2;
constexpr long kAbiOfTruncate = 3;
constexpr long kAbiOfScopes = 6;

constexpr uint64_t kForbidden = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                                LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;

// A path that is missing cannot be excepted, and needs not be.
absl::Status Except(const OwnedFd& ruleset, const std::string& path, uint64_t access) {
  const OwnedFd file(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!file.valid()) return absl::OkStatus();
  landlock_path_beneath_attr rule = {};
  rule.allowed_access = access;
  rule.parent_fd = file.get();
  if (syscall(SYS_landlock_add_rule, ruleset.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return LandlockFailure(path);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DropCapabilities(bool keep_net_raw) {
  if (absl::Status status = CheckAlone(); !status.ok()) return status;
  errno = 0;
  if (capng_get_caps_process() != 0) return Refused("reading them");
  for (const Needed& needed : {kNetAdmin, kNetRaw}) {
    if (needed.capability == CAP_NET_RAW && !keep_net_raw) continue;
    if (capng_have_capability(CAPNG_PERMITTED, needed.capability) == 0) {
      return Missing(needed, keep_net_raw);
    }
  }
  constexpr unsigned int kMost[] = {CAP_NET_ADMIN, CAP_NET_RAW};
  return LimitCapabilities(absl::MakeSpan(kMost).first(keep_net_raw ? 2 : 1), keep_net_raw);
}

absl::Status LimitCapabilities(absl::Span<const unsigned int> most, bool for_programs) {
  if (absl::Status status = CheckAlone(); !status.ok()) return status;
  errno = 0;
  if (capng_get_caps_process() != 0) return Refused("reading them");
  std::vector<unsigned int> kept;
  for (const unsigned int capability : most) {
    if (capng_have_capability(CAPNG_PERMITTED, capability) != 0) kept.push_back(capability);
  }
  // The bounding set can only be made smaller by who has CAP_SETPCAP. Who has not, a service with
  // an ambient CAP_NET_ADMIN say, was given its bounding set by whoever started it, and
  // no_new_privs below keeps programs from gaining anything out of a larger one.
  const bool may_bound = capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP) != 0;
  capng_clear(CAPNG_SELECT_ALL);
  const auto sets =
      static_cast<capng_type_t>(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET |
                                (for_programs ? CAPNG_INHERITABLE | CAPNG_AMBIENT : 0));
  for (const unsigned int capability : kept) capng_update(CAPNG_ADD, sets, capability);
  // The bounding set first: the rest takes CAP_SETPCAP away.
  if (may_bound && capng_apply(CAPNG_SELECT_BOUNDS) != 0) return Refused("the bounding set");
  if (capng_apply(CAPNG_SELECT_CAPS) != 0) return Refused("the thread's sets");
  if (capng_apply(CAPNG_SELECT_AMBIENT) != 0) return Refused("the ambient set");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Refused("PR_SET_NO_NEW_PRIVS");
  return absl::OkStatus();
}

absl::Status ForbidFileWrites(const std::string& may_be_made) {
  if (kBuiltWithASanitizer) {
    return absl::UnimplementedError("instrumented build, whose run time writes files of its own");
  }
  const long abi =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 1) {
    return absl::UnimplementedError(absl::StrCat("this kernel, or the container, has no Landlock: ",
                                                 std::generic_category().message(errno)));
  }
  LandlockRuleset rules = {.handled_access_fs = kForbidden};
  if (abi >= kAbiOfRefer) rules.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
  if (abi >= kAbiOfTruncate) rules.handled_access_fs |= kTruncate;
  if (abi >= kAbiOfScopes) rules.scoped = kScopeSignal;
  const OwnedFd ruleset(
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0)));
  if (!ruleset.valid()) return LandlockFailure("making the rules");
  // A shell script in a program's place redirects to it.
  absl::Status status = Except(ruleset, "/dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE);
  if (status.ok() && !may_be_made.empty()) {
    const std::string directory = std::filesystem::path(may_be_made).parent_path().string();
    status = Except(ruleset, directory, LANDLOCK_ACCESS_FS_MAKE_REG);
  }
  if (!status.ok()) return status;
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0)
    return LandlockFailure("applying them");
  return absl::OkStatus();
}

}  // namespace kipt::agent
