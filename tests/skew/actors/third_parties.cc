// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/actors/iptables_calls.h"
#include "tests/support/legacy_tables.h"
#include "tests/support/scratch_directory.h"

namespace kipt::skew {
namespace {

using nlohmann::json;
using testing::IpFamily;
using testing::Iptables;
using testing::KubeletStep;
using testing::ProgramResult;
using testing::ScratchDirectory;

constexpr const char* kTables[] = {"mangle", "nat", "filter"};
constexpr char kMarkMasq[] = "KUBE-MARK-MASQ";

// A "/run/..." of its own that holds `iptables` and `ip6tables`, which are those of `choice`.
bool WritePrograms(const IptablesChoice& choice, const ScratchDirectory& directory) {
  for (const char* name : {"iptables", "ip6tables"}) {
    const std::string script = absl::StrCat(
        "#!/bin/sh\nexec ",
        choice.chroot_dir.empty() ? "" : absl::StrCat("/usr/sbin/chroot ", choice.chroot_dir, " "),
        "/usr/sbin/", name, "-", testing::NameOf(choice.mode), " \"$@\"\n");
    if (!directory.WriteFile(name, script, /*executable=*/true)) return false;
  }
  return true;
}

json PortmapPlugin() {
  return {{"type", "portmap"},
          // Newer ones may choose nftables by themselves, and refuse the next there.
          {"backend", "iptables"},
          {"capabilities", {{"portMappings", true}}},
          {"externalSetMarkChain", kMarkMasq}};
}

// What a container runtime gives the plugin, behind what the plugin before it has answered.
json PortmapInput(const PortMapping& mapping, const std::string& pod_netns) {
  json config = PortmapPlugin();
  config["cniVersion"] = "1.0.0";
  config["name"] = "podnet";
  config["prevResult"] = {{"cniVersion", "1.0.0"},
                          {"interfaces", {{{"name", "eth0"}, {"sandbox", pod_netns}}}},
                          {"ips", {{{"interface", 0}, {"address", mapping.pod_address + "/24"}}}}};
  json ports = json::array();
  for (const char* protocol : {"tcp", "udp"}) {
    ports.push_back({{"hostPort", mapping.host_port},
                     {"containerPort", mapping.pod_port},
                     {"protocol", protocol}});
  }
  config["runtimeConfig"] = {{"portMappings", ports}};
  return config;
}

std::string PluginDirectory() {
  for (const char* directory : kPluginDirectories) {
    if (access(absl::StrCat(directory, "/portmap").c_str(), X_OK) == 0) return directory;
  }
  return "";
}

// `chain` of nat, to which packets with this destination type come, leads those to `port` to
// `target`.
Act AddUser(const IptablesChoice& iptables, const char* chain, std::vector<std::string> match,
            int port, const char* target) {
  std::vector<KubeletStep> steps = {EnsureChain("nat", chain)};
  for (const char* protocol : {"tcp", "udp"}) {
    steps.push_back({KubeletStep::Kind::kEnsureAppend,
                     "nat",
                     chain,
                     {"-p", protocol, "--dport", absl::StrCat(port), "-j", target}});
  }
  match.insert(match.end(), {"-j", chain});
  steps.push_back({KubeletStep::Kind::kEnsureAppend, "nat", "PREROUTING", std::move(match)});
  Act act;
  for (const IpFamily family : testing::kBothFamilies) {
    FamilyNotes notes(family, act);
    const testing::KubeletRun run = testing::RunKubelet(iptables.Of(family), steps);
    notes.Done(absl::StrCat(chain, ": ", run.rules_added, " rules added"));
    if (!run.error.empty()) notes.Failed(run.error);
  }
  return act;
}

Act Flush(const IptablesChoice& choice, const std::vector<std::string>& tables) {
  Act act;
  for (const IpFamily family : testing::kBothFamilies) {
    FamilyNotes notes(family, act);
    const Iptables iptables = choice.Of(family);
    for (const char* what : {"-F", "-X"}) {
      for (const std::string& table : tables) {
        const ProgramResult result = iptables.Run({"-w", "-t", table, what});
        const std::string command = absl::StrCat("iptables -t ", table, " ", what);
        if (result.exit_code == 0) {
          notes.Done(command);
        } else if (what == absl::string_view("-X")) {
          notes.Done(absl::StrCat(command, " was refused: ", WhatFailed(result)));
        } else {
          notes.Failed(absl::StrCat(command, ": ", WhatFailed(result)));
        }
      }
    }
  }
  return act;
}

}  // namespace

Act AddPortmap(const IptablesChoice& iptables, const PortMapping& mapping,
               const std::string& pod_netns) {
  const std::string plugins = PluginDirectory();
  if (plugins.empty()) return {.ok = false, .error = "no CNI plugin portmap on this machine"};
  const ScratchDirectory directory;
  if (!WritePrograms(iptables, directory)) {
    return {.ok = false, .error = "no directory of its own to be had in /run"};
  }
  const ProgramResult added = testing::RunProgram(
      {"/usr/bin/env", "CNI_COMMAND=ADD", absl::StrCat("CNI_CONTAINERID=pod", mapping.host_port),
       "CNI_NETNS=" + pod_netns, "CNI_IFNAME=eth0", "CNI_PATH=" + plugins,
       absl::StrCat("PATH=", directory.Path(""), ":/usr/sbin:/usr/bin:/sbin:/bin"),
       plugins + "/portmap"},
      PortmapInput(mapping, pod_netns).dump());
  Act act;
  act.done.push_back(absl::StrCat("portmap ADD: port ", mapping.host_port, " leads to ",
                                  mapping.pod_address, ":", mapping.pod_port));
  if (added.exit_code == 0) return act;
  act.ok = false;
  // It says what is wrong on standard output.
  act.error = absl::StrCat("portmap: exit code ", added.exit_code, ": ", added.out, added.err);
  return act;
}

Act WriteCniConfig(const std::string& directory) {
  const std::string path = directory + "/10-podnet.conflist";
  const json conflist = {{"cniVersion", "1.0.0"},
                         {"name", "podnet"},
                         {"plugins", {{{"type", "ptp"}}, PortmapPlugin()}}};
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  std::ofstream file(path);
  file << conflist.dump(2) << "\n";
  file.close();
  if (!file.good()) return {.ok = false, .error = "cannot write " + path};
  return {.done = {path + " names " + kMarkMasq}};
}

Act AddUserOfMarkDrop(const IptablesChoice& iptables, int port) {
  return AddUser(iptables, "USER-DROPS", {"-m", "addrtype", "--dst-type", "LOCAL"}, port,
                 "KUBE-MARK-DROP");
}

Act AddUserOfMarkMasq(const IptablesChoice& iptables, int port) {
  return AddUser(iptables, "USER-MASQ", {"-m", "addrtype", "!", "--dst-type", "LOCAL"}, port,
                 kMarkMasq);
}

Act FlushEverything(const IptablesChoice& iptables) {
  return Flush(iptables, {std::begin(kTables), std::end(kTables)});
}

Act FlushTable(const IptablesChoice& iptables, const std::string& table) {
  return Flush(iptables, {table});
}

}  // namespace kipt::skew
