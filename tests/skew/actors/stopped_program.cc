// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/actors/stopped_program.h"

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace kipt::skew {

bool LinkIptables(const testing::ScratchDirectory& directory, testing::IptablesMode mode) {
  if (!directory.MakeDirectory("bin")) return false;
  for (const char* family : {"iptables", "ip6tables"}) {
    for (const char* suffix : {"", "-save", "-restore"}) {
      std::error_code error;
      std::filesystem::create_symlink(
          absl::StrCat("/usr/sbin/", family, "-", testing::NameOf(mode), suffix),
          directory.Path(absl::StrCat("bin/", family, suffix)), error);
      if (error) return false;
    }
  }
  return true;
}

std::vector<std::string> PathWith(const testing::ScratchDirectory& directory) {
  return {absl::StrCat("PATH=", directory.Path("bin"), ":/usr/sbin:/usr/bin:/sbin:/bin")};
}

std::string LastLines(const std::string& output) {
  constexpr size_t kLines = 8;
  std::vector<std::string> lines = absl::StrSplit(output, '\n', absl::SkipWhitespace());
  if (lines.size() > kLines) {
    lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(kLines));
  }
  return absl::StrJoin(lines, " | ");
}

void StoppedProgram::Start(const std::vector<std::string>& argv,
                           const std::vector<std::string>& environment) {
  program_ = std::make_unique<testing::BackgroundProgram>(argv, environment);
}

Act StoppedProgram::RunUntil(const std::function<bool()>& done, absl::Duration patience,
                             const std::string& complaint) {
  if (program_ == nullptr) return {.ok = false, .error = "not started"};
  program_->Signal(SIGCONT);
  const bool over = testing::WaitUntil([&] { return !program_->Running() || done(); }, patience);
  if (!program_->Running()) {
    const int code = program_->Wait();
    return {.ok = false,
            .error = absl::StrCat("ended with ", code, ": ", LastLines(program_->Output()))};
  }
  program_->Signal(SIGSTOP);
  if (over) return {};
  return {.ok = false, .error = absl::StrCat(complaint, ": ", LastLines(program_->Output()))};
}

}  // namespace kipt::skew
