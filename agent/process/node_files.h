// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/node_files.h
//
// Files as the node sees them: an absolute link begins at the node's root, which is a directory of
// this process where it runs in a container, and no link leads out of it.
#ifndef KIPT_AGENT_PROCESS_NODE_FILES_H_
#define KIPT_AGENT_PROCESS_NODE_FILES_H_

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/process/owned_fd.h"

namespace kipt::agent {

struct WalkedPath {
  // What the path leads to, opened with O_PATH; none where there is an error.
  OwnedFd file;
  // errno; ENOENT where something on the way is missing.
  int error = 0;
  // For an absolute path: the path itself, what the links in the place of its last component name,
  // and where each of them is. The last one is the file's name without links.
  std::vector<std::string> names;
};

// Called before `name` is looked up in `directory`; `last`: only a link can lead further. False
// ends the walk.
using BeforeLookup =
    std::function<bool(const OwnedFd& directory, const std::string& name, bool last)>;

// Follows `path` step by step, as the kernel does (path_resolution(7)), with the directory `root`
// as "/". A relative path begins in the current directory. Directories are held by descriptor, so
// that a rename meanwhile leads nowhere else. Files are not opened to be read: for a device or a
// FIFO that may do something, or wait.
WalkedPath WalkPath(const std::string& root, const std::string& path,
                    const BeforeLookup& before = nullptr);

// Paths are the node's, with or without a slash in front; errors name them as this process sees
// them. NotFound: there is no such file.
class NodeFiles {
 public:
  explicit NodeFiles(std::string root) : root_(std::move(root)) {}

  // Whether there is such a root.
  absl::Status Check() const;

  // "/host/etc/cni/net.d": how this process, and messages, name `path`.
  std::string Shown(absl::string_view path) const;

  // The whole of a regular file of at most `most_bytes`. FailedPrecondition: it is no regular file.
  // ResourceExhausted: it is larger.
  absl::StatusOr<std::string> Read(const std::string& path, size_t most_bytes) const;

  // The names in a directory for which `is_wanted` holds, directories left out. A link to a
  // directory is none.
  absl::StatusOr<std::set<std::string>> List(
      const std::string& path, const std::function<bool(absl::string_view)>& is_wanted) const;

 private:
  std::string root_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_NODE_FILES_H_
