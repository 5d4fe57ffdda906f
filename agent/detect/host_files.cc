// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/host_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <exception>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/process/files.h"
#include "agent/text/printable.h"
#include "nlohmann/json.hpp"

namespace kipt::agent {
namespace {

// The order of systemd's default PATH, which is kubelet's.
constexpr const char* kProgramDirectories[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                               "/usr/bin",        "/sbin",          "/bin"};

// xtables-multi is iptables 1.4 to 1.6 without nft; xtables-compat-multi is the nft of 1.6 and 1.7.
constexpr absl::string_view kNftNames[] = {"iptables-nft", "ip6tables-nft", "xtables-nft-multi",
                                           "xtables-compat-multi"};
constexpr absl::string_view kLegacyNames[] = {"iptables-legacy", "ip6tables-legacy",
                                              "xtables-legacy-multi", "xtables-multi"};

using nlohmann::json;

constexpr absl::string_view kKey = "externalSetMarkChain";
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr absl::string_view kListSuffix = ".conflist";
constexpr absl::string_view kPluginSuffix = ".conf";

// Where nodes keep CNI configurations, relative to their root.
constexpr absl::string_view kCniDirectories[] = {
    // containerd, CRI-O, cri-dockerd: kubeadm, RKE2, k0s, Talos, Bottlerocket, EKS, GKE, AKS.
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
    // minikube, until 1.25: kubelet's --cni-conf-dir, as another plugin used /etc/cni/net.d.
    "etc/cni/net.mk",
};

bool IsConfigName(absl::string_view name) {
  return absl::EndsWith(name, kListSuffix) || absl::EndsWith(name, kPluginSuffix) ||
         absl::EndsWith(name, ".json");
}

// What an object itself names, as encoding/json reads it for plugins: in any case, and null is
// nothing. Which of two spellings counts depends on their order there, so here each does.
absl::StatusOr<std::vector<CniReference>> ReadPlugin(absl::string_view file,
                                                     const json& container) {
  CniReference plugin = {.file = std::string(file), .plugin = {}, .chain = {}};
  std::vector<std::string> chains;
  for (const auto& [key, value] : container.items()) {
    if (key == "type" && value.is_string()) plugin.plugin = value.get_ref<const std::string&>();
    if (absl::EqualsIgnoreCase(key, "backend") && value.is_string()) {
      plugin.backend = value.get_ref<const std::string&>();
    }
    if (!absl::EqualsIgnoreCase(key, kKey) || value.is_null()) continue;
    if (!value.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": ", kKey, " is not text"));
    }
    if (const auto& chain = value.get_ref<const std::string&>(); !chain.empty()) {
      chains.push_back(chain);
    }
  }
  std::vector<CniReference> references(chains.size(), plugin);
  for (size_t i = 0; i < chains.size(); ++i) references[i].chain = std::move(chains[i]);
  return references;
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
    absl::StatusOr<std::vector<CniReference>> references = ReadPlugin(file, value);
    if (!references.ok()) return references.status();
    absl::c_move(*references, std::back_inserter(found));
    // Backwards, as the last of `left` is next.
    for (auto child = value.rbegin(); child != value.rend(); ++child) {
      if (child->is_structured()) left.push_back(&*child);
    }
  }
  return found;
}

// libcni matches both keys by their exact letters, and takes true in quotes, too (libcni/conf.go,
// NetworkConfFromBytes).
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

// libcni refuses to use a network without such a name (utils.ValidateNetworkName).
bool IsNetworkName(absl::string_view name) {
  const auto is_alphanumeric = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  };
  return !name.empty() && is_alphanumeric(name[0]) && absl::c_all_of(name, [&](char c) {
    return is_alphanumeric(c) || absl::StrContains("_.-", c);
  });
}

void NoteProblem(const absl::Status& status, CniConfigs& configs) {
  configs.problems.emplace_back(status.message());
}

// Nothing if there is no such directory, or it cannot be read.
std::optional<std::set<std::string>> ListConfigs(
    const NodeFiles& node, const std::string& path,
    const std::function<bool(absl::string_view)>& is_wanted, CniConfigs& configs) {
  absl::StatusOr<std::set<std::string>> names = node.List(path, is_wanted);
  if (names.ok()) return *std::move(names);
  if (!absl::IsNotFound(names.status())) NoteProblem(names.status(), configs);
  return std::nullopt;
}

// Returns the network of ParseCniConfig.
std::optional<std::string> ReadConfig(const NodeFiles& node, const std::string& path,
                                      CniConfigs& configs) {
  std::optional<std::string> network;
  const absl::StatusOr<std::string> text = node.Read(path, kMostBytes);
  const auto references =
      text.ok() ? ParseCniConfig(node.Shown(path), *text, &network) : text.status();
  if (references.ok()) {
    absl::c_copy(*references, std::back_inserter(configs.references));
  } else {
    NoteProblem(references.status(), configs);
  }
  return network;
}

// The configurations in a directory, and the plugins in the sub-folders of their networks. False:
// there is such a directory, and it has none.
bool ReadDirectory(const NodeFiles& node, const std::string& path, CniConfigs& configs) {
  const auto names = ListConfigs(node, path, IsConfigName, configs);
  if (!names) return true;
  configs.directories.push_back(node.Shown(path));
  std::set<std::string> networks;
  for (const std::string& name : *names) {
    const auto network = ReadConfig(node, absl::StrCat(path, "/", name), configs);
    if (!network || !absl::EndsWith(name, kListSuffix)) continue;
    if (IsNetworkName(*network)) {
      networks.insert(*network);
    } else {
      configs.problems.push_back(
          absl::StrCat(node.Shown(path), "/", name, ": ", GoQuote(*network),
                       " is not a valid network name, so its sub-folder is not read"));
    }
  }
  // As libcni's NetworkPluginConfsFromFiles.
  const auto is_plugin = [](absl::string_view name) { return absl::EndsWith(name, kPluginSuffix); };
  for (const std::string& network : networks) {
    const std::string folder = absl::StrCat(path, "/", network);
    const auto plugins = ListConfigs(node, folder, is_plugin, configs);
    if (!plugins) absl::c_move(node.Hidden({folder}), std::back_inserter(configs.hidden));
    if (!plugins && node.IsDangling(folder)) {
      configs.problems.push_back(absl::StrCat(node.Shown(folder), ": its link leads nowhere"));
    }
    if (!plugins) continue;
    for (const std::string& name : *plugins) {
      ReadConfig(node, absl::StrCat(folder, "/", name), configs);
    }
  }
  return !names->empty();
}

}  // namespace

HostRoot OwnHostRoot(const std::string& proc, const std::string& root,
                     uint64_t initial_pid_namespace) {
  const std::string namespaces = proc + "/thread-self/ns/";
  struct stat pid = {};
  if (stat((namespaces + "pid").c_str(), &pid) != 0) {
    return {"", absl::StrCat(namespaces, "pid: ", ErrorText(errno))};
  }
  if (pid.st_ino != initial_pid_namespace) {
    return {"", "this process is in a container (another pid namespace); give --host-root"};
  }
  for (const auto& [own, init] :
       {std::pair(namespaces + "mnt", proc + "/1/ns/mnt"), std::pair(root, proc + "/1/root")}) {
    struct stat ours = {};
    struct stat theirs = {};
    if (stat(own.c_str(), &ours) != 0 || stat(init.c_str(), &theirs) != 0) {
      return {"", absl::StrCat("whether this process sees the host's files is not known: ", init,
                               ": ", ErrorText(errno), "; give --host-root")};
    }
    if (ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino) {
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
    // Absent, unlike a link that leads nowhere.
    if (resolved.names.size() == 1 && (resolved.error == ENOENT || resolved.error == ENOTDIR)) {
      continue;
    }
    HostProgram program = {.mode = IptablesMode::kUnknown,
                           .text = absl::StrJoin(resolved.names, " -> ")};
    if (resolved.error != 0) {
      absl::StrAppend(&program.text, ": ", ErrorText(resolved.error));
      constexpr int kShortages[] = {EMFILE, ENFILE, ENOMEM};
      program.unreadable = absl::c_linear_search(kShortages, resolved.error);
      return program;
    }
    // If links disagree, the last decides, which is what is run.
    for (const absl::string_view path : resolved.names) {
      const absl::string_view file = path.substr(path.rfind('/') + 1);
      if (absl::c_linear_search(kNftNames, file)) program.mode = IptablesMode::kNft;
      if (absl::c_linear_search(kLegacyNames, file)) program.mode = IptablesMode::kLegacy;
    }
    if (program.mode == IptablesMode::kUnknown) {
      absl::StrAppend(&program.text, ": neither iptables-nft nor iptables-legacy by name");
    }
    return program;
  }
  return {.mode = std::nullopt,
          .text = absl::StrCat("no ", name, " in the host's ",
                               absl::StrJoin(kProgramDirectories, ", "))};
}

absl::StatusOr<std::vector<CniReference>> ParseCniConfig(absl::string_view file,
                                                         absl::string_view text,
                                                         std::optional<std::string>* network) {
  // Only running out of memory is expected to throw.
  try {
    const json document = json::parse(text.begin(), text.end(), nullptr,
                                      /*allow_exceptions=*/false);
    if (document.is_discarded()) {
      return absl::InvalidArgumentError(absl::StrCat(file, " is not JSON"));
    }
    if (!document.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(file, " is not a CNI configuration"));
    }
    absl::StatusOr<std::vector<CniReference>> references = FindReferences(file, document);
    if (references.ok() && network != nullptr) *network = NetworkWithSubFolder(document);
    return references;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", error.what()));
  }
}

CniConfigs ReadNodeCniConfigs(const HostRoot& root, const std::vector<std::string>& given) {
  CniConfigs configs;
  if (given.empty() && root.directory.empty()) {
    configs.problems.push_back(absl::StrCat("CNI configurations: ", root.problem));
    return configs;
  }
  const NodeFiles files(given.empty() ? root.directory : "/");
  if (absl::Status status = files.Check(); !status.ok()) {
    NoteProblem(status, configs);
    return configs;
  }
  for (const std::string& directory : given) {
    // A pod's mount of a folder that the node lacks creates it there.
    if (!ReadDirectory(files, directory, configs)) {
      configs.problems.push_back(
          absl::StrCat(directory, " has no CNI configuration: is it where this node keeps them?"));
    }
    const int error = WalkPath("/", directory).error;
    if (error == ENOENT) NoteProblem(ReadFailure(error, directory), configs);
  }
  if (!given.empty()) return configs;
  configs.hidden = files.Hidden(kCniDirectories);
  for (const absl::string_view directory : kCniDirectories) {
    ReadDirectory(files, std::string(directory), configs);
  }
  return configs;
}

}  // namespace kipt::agent
