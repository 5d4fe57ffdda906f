// SPDX-License-Identifier: Apache-2.0
#include "agent/process/file_writes.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "agent/process/owned_fd.h"
#include "agent/process/sanitizer.h"

namespace kipt::agent {
namespace {

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

absl::Status Failure(absl::string_view step) {
  return absl::InternalError(absl::StrCat("forbidding writes to files (Landlock): ", step, ": ",
                                          std::generic_category().message(errno)));
}

// A path that is missing cannot be excepted, and needs not be.
absl::Status Except(const OwnedFd& ruleset, const std::string& path, uint64_t access) {
  const OwnedFd file(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!file.valid()) return absl::OkStatus();
  landlock_path_beneath_attr rule = {};
  rule.allowed_access = access;
  rule.parent_fd = file.get();
  if (syscall(SYS_landlock_add_rule, ruleset.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return Failure(path);
  }
  return absl::OkStatus();
}

}  // namespace

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
  if (!ruleset.valid()) return Failure("making the rules");
  // A shell script in a program's place redirects to it.
  absl::Status status = Except(ruleset, "/dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE);
  if (status.ok() && !may_be_made.empty()) {
    const std::string directory = std::filesystem::path(may_be_made).parent_path().string();
    status = Except(ruleset, directory, LANDLOCK_ACCESS_FS_MAKE_REG);
  }
  if (!status.ok()) return status;
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) return Failure("applying them");
  return absl::OkStatus();
}

}  // namespace kipt::agent
