// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/host_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/process/files.h"
#include "featuregates/go_text.h"
#include "nlohmann/json.hpp"

namespace kipt::agent {
namespace {

// The order of systemd's default PATH, which is kubelet's.
constexpr const char* kProgramDirectories[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
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

using nlohmann::json;

constexpr absl::string_view kKey = "externalSetMarkChain";
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr absl::string_view kListSuffix = ".conflist";
constexpr absl::string_view kPluginSuffix = ".conf";

constexpr absl::string_view kCniDirectories[] = {
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

bool IsConfigName(absl::string_view name) {
  return absl::EndsWith(name, kListSuffix) || absl::EndsWith(name, kPluginSuffix) ||
         absl::EndsWith(name, ".json");
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

// At any depth: plugins are in lists, and in other plugins (the "delegate" of flannel, the
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

// One configuration.
struct CniFile {
  std::vector<CniReference> references;
  // Of a list whose plugins may also be files of their own: the name of its network. libcni looks
  // for both by their exact letters, and takes true in quotes, too (libcni/conf.go,
  // NetworkConfFromBytes).
  std::optional<std::string> network;
};

std::optional<std::string> NetworkWithSubFolder(const json& list) {
  const auto name = list.find("name");
  if (name == list.end() || !name->is_string()) return std::nullopt;
  const auto only = list.find("loadOnlyInlinedPlugins");
  const bool inlined =
      only != list.end() &&
      (*only == true ||
       (only->is_string() && absl::EqualsIgnoreCase(only->get_ref<const std::string&>(), "true")));
  return inlined ? std::nullopt : std::optional(name->get<std::string>());
}

absl::StatusOr<CniFile> Parse(absl::string_view file, absl::string_view text) {
  // Nothing of this is expected to throw; the library may all the same, where memory runs out.
  try {
    const json document = json::parse(text.begin(), text.end(), nullptr,
                                      /*allow_exceptions=*/false);
    if (document.is_discarded()) {
      return absl::InvalidArgumentError(absl::StrCat(file, " is not JSON"));
    }
    if (!document.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(file, " is no CNI configuration"));
    }
    absl::StatusOr<std::vector<CniReference>> references = FindReferences(file, document);
    if (!references.ok()) return references.status();
    return CniFile{*std::move(references), NetworkWithSubFolder(document)};
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", error.what()));
  }
}

// utils.ValidateNetworkName of libcni, with which it refuses to use a network.
bool IsNetworkName(absl::string_view name) {
  const auto is_alphanumeric = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  };
  return !name.empty() && is_alphanumeric(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return is_alphanumeric(c) || c == '_' || c == '.' || c == '-';
         });
}

// One directory of configurations, and the sub-folders of its networks.
class DirectoryReader {
 public:
  DirectoryReader(const NodeFiles& node, CniConfigs& configs) : node_(node), configs_(configs) {}

  void Read(const std::string& path) {
    const absl::StatusOr<std::set<std::string>> names = node_.List(path, IsConfigName);
    if (absl::IsNotFound(names.status())) return;
    if (!names.ok()) return NoteProblem(names.status());
    configs_.directories.push_back(node_.Shown(path));
    std::set<std::string> networks;
    for (const std::string& name : *names) {
      std::optional<std::string> network = ReadFile(absl::StrCat(path, "/", name));
      if (!network || !absl::EndsWith(name, kListSuffix)) continue;
      if (IsNetworkName(*network)) {
        networks.insert(*std::move(network));
      } else {
        NoteProblem(absl::InvalidArgumentError(
            absl::StrCat(node_.Shown(path), "/", name, ": ", featuregates::GoQuote(*network),
                         " is no name of a network, so its sub-folder is not read")));
      }
    }
    for (const std::string& network : networks) ReadSubFolder(absl::StrCat(path, "/", network));
  }

 private:
  // NetworkPluginConfsFromFiles.
  void ReadSubFolder(const std::string& path) {
    const absl::StatusOr<std::set<std::string>> names = node_.List(
        path, [](absl::string_view name) { return absl::EndsWith(name, kPluginSuffix); });
    if (absl::IsNotFound(names.status())) return;
    if (!names.ok()) return NoteProblem(names.status());
    for (const std::string& name : *names) ReadFile(absl::StrCat(path, "/", name));
  }

  // Returns CniFile::network.
  std::optional<std::string> ReadFile(const std::string& path) {
    const absl::StatusOr<std::string> text = node_.Read(path, kMostBytes);
    absl::StatusOr<CniFile> file = text.ok() ? Parse(node_.Shown(path), *text) : text.status();
    if (!file.ok()) {
      NoteProblem(file.status());
      return std::nullopt;
    }
    std::move(file->references.begin(), file->references.end(),
              std::back_inserter(configs_.references));
    return std::move(file->network);
  }

  void NoteProblem(const absl::Status& status) { configs_.problems.emplace_back(status.message()); }

  const NodeFiles& node_;
  CniConfigs& configs_;
};

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
  for (const char* const directory : kProgramDirectories) {
    const WalkedPath resolved =
        WalkPath(std::string(host_root), absl::StrCat(directory, "/", name));
    // Not there, as opposed to a link that leads nowhere.
    const bool absent =
        resolved.names.size() == 1 && (resolved.error == ENOENT || resolved.error == ENOTDIR);
    if (!absent) return Recognise(resolved);
  }
  return {.mode = std::nullopt,
          .text = absl::StrCat("no ", name, " in the host's ",
                               absl::StrJoin(kProgramDirectories, ", "))};
}

absl::Span<const absl::string_view> KnownCniDirectories() { return kCniDirectories; }

absl::StatusOr<std::vector<CniReference>> ParseCniConfig(absl::string_view file,
                                                         absl::string_view text) {
  absl::StatusOr<CniFile> parsed = Parse(file, text);
  if (!parsed.ok()) return parsed.status();
  return std::move(parsed->references);
}

CniConfigs ReadNodeCniConfigs(const HostRoot& root, const std::vector<std::string>& given) {
  CniConfigs configs;
  if (given.empty() && root.directory.empty()) {
    configs.problems.push_back(absl::StrCat("CNI configurations: ", root.problem));
    return configs;
  }
  const NodeFiles files(given.empty() ? root.directory : "/");
  if (absl::Status status = files.Check(); !status.ok()) {
    configs.problems.emplace_back(status.message());
    return configs;
  }
  DirectoryReader reader(files, configs);
  for (const std::string& directory : given) reader.Read(directory);
  if (!given.empty()) return configs;
  for (const absl::string_view directory : kCniDirectories) reader.Read(std::string(directory));
  return configs;
}

}  // namespace kipt::agent
