// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/cni_configs.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <exception>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/process/owned_fd.h"
#include "nlohmann/json.hpp"

namespace kipt::agent {
namespace {

using nlohmann::json;

constexpr absl::string_view kKey = "externalSetMarkChain";
constexpr size_t kMostBytes = size_t{1} << 20;

constexpr absl::string_view kDirectories[] = {
    // containerd, CRI-O, cri-dockerd, and so kubeadm, RKE2, k0s, Talos, Bottlerocket, EKS, GKE,
    // AKS.
    "etc/cni/net.d",
    // k3s and Rancher Desktop: conf_dir in the containerd configuration that k3s generates.
    "var/lib/rancher/k3s/agent/etc/cni/net.d",
    // The same place in RKE2's data directory, which some charts write to.
    "var/lib/rancher/rke2/agent/etc/cni/net.d",
    // MicroK8s (canonical.com/microk8s/docs/change-cidr).
    "var/snap/microk8s/current/args/cni-network",
    // OpenShift 4: CRI-O's network_dir, and where the default network's plugin writes for Multus.
    "etc/kubernetes/cni/net.d",
    "run/multus/cni/net.d",
    // confDir of the Multus plugin: networks that pods ask for by name.
    "etc/cni/multus/net.d",
    // minikube, until 1.25: kubelet's --cni-conf-dir, where another plugin stood in /etc/cni/net.d.
    "etc/cni/net.mk",
};

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};

absl::Status Failure(int error, absl::string_view path) {
  if (error == EXDEV) {
    return absl::FailedPreconditionError(
        absl::StrCat("reading ", path, ": its links lead out of the host's root"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("reading ", path));
}

// Files as the node sees them: an absolute link begins at `root`, which is a directory of this
// process where it runs in a container, and none leads out of it.
class NodeFiles {
 public:
  explicit NodeFiles(std::string root)
      : root_(std::move(root)), fd_(open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

  absl::Status Check() const { return fd_.valid() ? absl::OkStatus() : Failure(ENOENT, root_); }

  // "/host/etc/cni/net.d", for messages.
  std::string Shown(absl::string_view path) const {
    return absl::StrCat(absl::StripSuffix(root_, "/"), "/", absl::StripPrefix(path, "/"));
  }

  // Without reading it: opening a device or a FIFO may do something, or wait. Negative: errno.
  OwnedFd Locate(const std::string& path) const {
    open_how how = {};
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    OwnedFd found(
        static_cast<int>(syscall(SYS_openat2, fd_.get(), path.c_str(), &how, sizeof how)));
    // Before Linux 5.6, or where a filter does not know the call.
    if (!found.valid() && (errno == ENOSYS || errno == EPERM)) return LocateByPath(path);
    return found;
  }

 private:
  OwnedFd LocateByPath(const std::string& path) const {
    OwnedFd found(open(Shown(path).c_str(), O_PATH | O_CLOEXEC));
    if (root_ == "/") return found;
    // Where links lead out of the root, it is another file than the node's, or none although the
    // node has it.
    const bool is_the_nodes = found.valid() ? absl::StartsWith(Resolved(found), Resolved(fd_) + "/")
                                            : errno != ENOENT || !HasLink(path);
    if (is_the_nodes) return found;
    errno = EXDEV;
    return OwnedFd();
  }

  // Keeps errno where it says no.
  bool HasLink(const std::string& path) const {
    const int error = errno;
    for (size_t end = 0; end != std::string::npos;) {
      end = path.find('/', end + 1);
      char target = 0;
      if (readlink(Shown(path.substr(0, end)).c_str(), &target, sizeof target) > 0) return true;
    }
    errno = error;
    return false;
  }

  static std::string Resolved(const OwnedFd& fd) {
    std::array<char, PATH_MAX> buffer{};
    const std::string link = absl::StrCat("/proc/self/fd/", fd.get());
    const ssize_t size = readlink(link.c_str(), buffer.data(), buffer.size());
    return size < 0 ? std::string() : std::string(buffer.data(), static_cast<size_t>(size));
  }

  std::string root_;
  OwnedFd fd_;
};

// What was located, to be read.
OwnedFd OpenLocated(const OwnedFd& located, int flags) {
  return OwnedFd(
      open(absl::StrCat("/proc/self/fd/", located.get()).c_str(), O_RDONLY | O_CLOEXEC | flags));
}

absl::StatusOr<std::string> ReadRegularFile(const NodeFiles& node, const std::string& path) {
  const std::string shown = node.Shown(path);
  const OwnedFd located = node.Locate(path);
  struct stat status = {};
  if (!located.valid() || fstat(located.get(), &status) != 0) return Failure(errno, shown);
  if (!S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(shown, " is no regular file"));
  }
  const OwnedFd file = OpenLocated(located, O_NONBLOCK);
  if (!file.valid()) return Failure(errno, shown);
  std::string text(kMostBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failure(errno, shown);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  if (size > kMostBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(shown, " is larger than 1 MiB"));
  }
  text.resize(size);
  return text;
}

bool IsConfigName(absl::string_view name) {
  return absl::EndsWith(name, ".conflist") || absl::EndsWith(name, ".conf") ||
         absl::EndsWith(name, ".json");
}

// The names of the files that libcni would read, sorted as it sorts them. Directories are not among
// them.
absl::StatusOr<std::set<std::string>> ListConfigs(const NodeFiles& node, const std::string& path) {
  const OwnedFd located = node.Locate(path);
  if (!located.valid()) return Failure(errno, node.Shown(path));
  OwnedFd fd = OpenLocated(located, O_DIRECTORY);
  if (!fd.valid()) return Failure(errno, node.Shown(path));
  const std::unique_ptr<DIR, DirectoryCloser> directory(fdopendir(fd.get()));
  if (directory == nullptr) return Failure(errno, node.Shown(path));
  fd.Release();
  std::set<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    if (entry->d_type != DT_DIR && IsConfigName(entry->d_name)) names.insert(entry->d_name);
  }
  if (errno != 0) return Failure(errno, node.Shown(path));
  return names;
}

absl::StatusOr<std::vector<CniReference>> ReadConfig(const NodeFiles& node,
                                                     const std::string& path) {
  const absl::StatusOr<std::string> text = ReadRegularFile(node, path);
  if (!text.ok()) return text.status();
  return ParseCniConfig(node.Shown(path), *text);
}

void ReadDirectory(const NodeFiles& node, const std::string& path, CniConfigs& configs) {
  const absl::StatusOr<std::set<std::string>> names = ListConfigs(node, path);
  if (absl::IsNotFound(names.status())) return;
  if (!names.ok()) {
    configs.problems.emplace_back(names.status().message());
    return;
  }
  configs.directories.push_back(node.Shown(path));
  for (const std::string& name : *names) {
    const std::string file = absl::StrCat(path, "/", name);
    absl::StatusOr<std::vector<CniReference>> references = ReadConfig(node, file);
    if (!references.ok()) {
      configs.problems.emplace_back(references.status().message());
      continue;
    }
    std::move(references->begin(), references->end(), std::back_inserter(configs.references));
  }
}

// What `object` itself says; "" where it names no chain.
absl::StatusOr<CniReference> ReadPlugin(absl::string_view file, const json& object) {
  CniReference reference = {.file = std::string(file), .plugin = {}, .chain = {}};
  for (const auto& [key, value] : object.items()) {
    if (key == "type" && value.is_string()) reference.plugin = value.get_ref<const std::string&>();
    // encoding/json, with which plugins read it, does not look at the case, and takes null for
    // nothing.
    if (!absl::EqualsIgnoreCase(key, kKey) || value.is_null()) continue;
    if (!value.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": ", kKey, " is no text"));
    }
    reference.chain = value.get_ref<const std::string&>();
  }
  return reference;
}

// At any depth: plugins stand in lists, and in other plugins (the "delegate" of flannel, the
// "delegates" of Multus). Not recursive: a file of brackets only is deep.
absl::StatusOr<std::vector<CniReference>> FindReferences(absl::string_view file,
                                                         const json& document) {
  std::vector<CniReference> found;
  std::vector<const json*> left = {&document};
  while (!left.empty()) {
    const json& value = *left.back();
    left.pop_back();
    if (value.is_object()) {
      absl::StatusOr<CniReference> reference = ReadPlugin(file, value);
      if (!reference.ok()) return reference.status();
      if (!reference->chain.empty()) found.push_back(*std::move(reference));
    }
    // The last one is looked at first.
    for (auto child = value.rbegin(); child != value.rend(); ++child) {
      if (child->is_structured()) left.push_back(&*child);
    }
  }
  return found;
}

}  // namespace

absl::Span<const absl::string_view> KnownCniDirectories() { return kDirectories; }

absl::StatusOr<std::vector<CniReference>> ParseCniConfig(absl::string_view file,
                                                         absl::string_view text) {
  // Nothing of this is expected to throw; the library may all the same, for want of memory too.
  try {
    const json document = json::parse(text.begin(), text.end(), nullptr,
                                      /*allow_exceptions=*/false);
    if (document.is_discarded()) {
      return absl::InvalidArgumentError(absl::StrCat(file, " is not JSON"));
    }
    if (!document.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(file, " is no CNI configuration"));
    }
    return FindReferences(file, document);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", error.what()));
  }
}

CniConfigs ReadCniConfigs(absl::Span<const std::string> directories) {
  CniConfigs configs;
  const NodeFiles files("/");
  for (const std::string& directory : directories) ReadDirectory(files, directory, configs);
  return configs;
}

CniConfigs ReadNodeCniConfigs(const HostRoot& root) {
  CniConfigs configs;
  if (root.directory.empty()) {
    configs.problems.push_back(absl::StrCat("CNI configurations: ", root.problem));
    return configs;
  }
  const NodeFiles files(root.directory);
  if (absl::Status status = files.Check(); !status.ok()) {
    configs.problems.emplace_back(status.message());
    return configs;
  }
  for (const absl::string_view directory : kDirectories) {
    ReadDirectory(files, std::string(directory), configs);
  }
  return configs;
}

}  // namespace kipt::agent
