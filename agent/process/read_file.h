// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/read_file.h
//
// Reads whole files, and lists directories. Streams would leak their descriptors into programs that
// other threads start.
#ifndef KIPT_AGENT_PROCESS_READ_FILE_H_
#define KIPT_AGENT_PROCESS_READ_FILE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kipt::agent {

// Reads from the current offset of `fd`, and blocks if it is a pipe. `name` appears in messages.
// Errors: ResourceExhausted if there are more than `most` bytes; otherwise as absl::ErrnoToStatus.
absl::StatusOr<std::string> ReadToEnd(int fd, const std::string& name, size_t most);

// Never blocks on a FIFO without a writer, which reads as empty. Errors as ReadToEnd; NotFound if
// the file does not exist.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most = size_t{16} << 20);

// Appends the names in a directory, sorted, without "." and "..". Returns 0, or the errno for which
// they are not all.
int ListDirectory(const std::string& path, std::vector<std::string>& names);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_READ_FILE_H_
