// SPDX-License-Identifier: Apache-2.0
#include "agent/process/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "agent/process/owned_fd.h"

namespace kipt::agent {

absl::StatusOr<std::string> ReadToEnd(int fd, const std::string& name, size_t most) {
  std::string text;
  std::array<char, 16384> piece;
  for (;;) {
    const ssize_t count = read(fd, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat("reading ", name));
    if (count == 0) return text;
    text.append(piece.data(), static_cast<size_t>(count));
    if (text.size() > most) {
      return absl::ResourceExhaustedError(absl::StrCat(name, " is larger than ", most, " bytes"));
    }
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most) {
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("reading ", path));
  return ReadToEnd(file.get(), path, most);
}

int ListDirectory(const std::string& path, std::vector<std::string>& names) {
  std::error_code error;
  std::filesystem::directory_iterator entry(path, error);
  for (; !error && entry != end(entry); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return error.value();
}

}  // namespace kipt::agent
