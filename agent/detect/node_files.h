// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/node_files.h
//
// Files as the node sees them: an absolute link begins at the node's root, which is a directory of
// this process where it runs in a container, and no link leads out of it.
#ifndef KIPT_AGENT_DETECT_NODE_FILES_H_
#define KIPT_AGENT_DETECT_NODE_FILES_H_

#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/process/owned_fd.h"

namespace kipt::agent {

// Paths are the node's, with or without a slash in front; errors name them as this process sees
// them. NotFound: there is no such file. FailedPrecondition: its links lead out of the root.
class NodeFiles {
 public:
  explicit NodeFiles(std::string root);

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
  OwnedFd Locate(const std::string& path) const;
  OwnedFd LocateByPath(const std::string& path) const;
  bool HasLink(const std::string& path) const;

  std::string root_;
  OwnedFd fd_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_NODE_FILES_H_
