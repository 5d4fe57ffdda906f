// SPDX-License-Identifier: Apache-2.0
//
// What is read of the node: CNI configurations, lists of modules and symbols, the legacy tables'
// names, versions and complaints of iptables programs, the tables' own bytes, other processes in
// /proc, links of the host's programs, an operator's allow list. Whatever these hold, each report
// has one line and a reason, and is fit to be logged.
#include <netinet/in.h>
// Need struct in6_addr to be the C library's, and so come after it.
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/allow_list.h"
#include "agent/detect/host_files.h"
#include "agent/detect/mode_evidence.h"
#include "agent/detect/routing.h"
#include "agent/detect/rule_support.h"
#include "agent/loop/writer.h"
#include "agent/process/own_process.h"
#include "agent/xtables/iptables_legacy_monitor.h"
#include "agent/xtables/iptables_legacy_programs.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/support/temporary_tree.h"
#include "tests/support/unescaped.h"

namespace kipt::testing {
namespace {

using netlink::Family;

// Between the files of one input.
constexpr char kSeparator = '\f';

// Files, written over each time: one folder for the life of the process.
const TemporaryTree& Files() {
  static const TemporaryTree tree;
  return tree;
}

// False where no link can have that target. The link of the last input is removed, not followed:
// it may name a file of this machine.
bool Linked(const std::string& name, absl::string_view target) {
  Files().Remove(name);
  Files().Directory(std::filesystem::path(name).parent_path());
  std::error_code error;
  std::filesystem::create_symlink(std::string(target), Files().Path(name), error);
  return !error;
}

bool IsOneLine(absl::string_view text) {
  return FindUnescaped(text).empty() && text.find('\n') == absl::string_view::npos;
}

void CheckCniConfig(absl::string_view text) {
  const auto references = agent::ParseCniConfig("fuzz.conflist", text);
  if (!references.ok()) return KIPT_REQUIRE_REASON(references.status());
  for (const agent::CniReference& reference : *references) {
    KIPT_REQUIRE(reference.file == "fuzz.conflist" && !reference.chain.empty());
  }
}

// /proc/modules, modules.builtin, modules.dep, kallsyms, modules_disabled.
void CheckModules(absl::string_view text) {
  agent::KernelPaths paths;
  Files().Write("proc/modules", TakePart(text, kSeparator));
  Files().Write("lib/modules.builtin", TakePart(text, kSeparator));
  Files().Write("lib/modules.dep", TakePart(text, kSeparator));
  Files().Write("proc/kallsyms", TakePart(text, kSeparator));
  Files().Write("proc/sys/kernel/modules_disabled", text);
  paths.proc = Files().Path("proc");
  paths.sys_module = Files().Path("no sys");
  paths.module_directories = {Files().Path("lib")};
  const agent::XtCompatReading reading = agent::ReadXtCompat(paths);
  KIPT_REQUIRE(reading.compat == agent::XtCompat::kPresent || !reading.reason.empty());
  // All lists can be read, so it is known.
  KIPT_REQUIRE(reading.compat != agent::XtCompat::kUnknown);
  KIPT_REQUIRE(agent::FindModule(paths, "nf_tables", "nft_do_chain") !=
               agent::ModuleState::kUnknown);
}

void CheckTableNames(absl::string_view text) {
  agent::ModeSources sources;
  Files().Write("dev", "");
  Files().Write("ip_tables_names", text);
  sources.table_names_path = Files().Path("%s_tables_names");
  const auto names = agent::IptablesLegacyTableNames(Family::kIPv4, sources);
  KIPT_REQUIRE(names.ok());
  for (const std::string& name : *names) KIPT_REQUIRE(!name.empty());
}

void CheckVersion(absl::string_view text) {
  const auto program = agent::ParseIptablesVersion(text);
  if (!program) return;
  const std::string again =
      absl::StrCat("iptables v", ToString(program->version),
                   program->variant.empty() ? "" : absl::StrCat(" (", program->variant, ")"));
  KIPT_REQUIRE(agent::ParseIptablesVersion(again) == program);
  (void)agent::RestoreWaitArguments(program->version, absl::Seconds(5));
}

// The exit code, the program's output, /proc/thread-self/status.
void CheckFailure(absl::string_view text) {
  const int exit_code = text.empty() ? 1 : std::max(1, static_cast<int>(text[0] & 0xff));
  if (!text.empty()) text.remove_prefix(1);
  const agent::CommandResult result = {
      .exit_code = exit_code, .output = {}, .errors = std::string(TakePart(text, kSeparator))};
  Files().Write("status", text);
  const absl::Status status =
      agent::IptablesLegacyFailure("writing", "/sbin/x", result, Files().Path("status"));
  KIPT_REQUIRE_REASON(status);
  KIPT_REQUIRE(IsOneLine(status.message()));
}

// comm, cmdline, cgroup and stat of a process, and its parent's comm.
void CheckWriter(absl::string_view text) {
  const absl::string_view comm = TakePart(text, kSeparator);
  Files().Write("proc/42/comm", absl::StrCat(comm, "\n"));
  Files().Write("proc/42/cmdline", TakePart(text, kSeparator));
  Files().Write("proc/42/cgroup", TakePart(text, kSeparator));
  Files().Write("proc/42/stat", TakePart(text, kSeparator));
  Files().Write("proc/41/comm", text);
  KIPT_REQUIRE(Linked("pid", "pid:[4026531836]"));
  const agent::Writer writer =
      agent::IdentifyWriter({.pid = 42, .command = std::string(comm)},
                            {.proc = Files().Path("proc"), .pid_namespace = Files().Path("pid")});
  KIPT_REQUIRE(!writer.command.empty());
  KIPT_REQUIRE(writer.command_line.size() <= 256);
  KIPT_REQUIRE(IsOneLine(ToString(writer)));
}

// /proc/self/stat, /proc/stat.
void CheckUsage(absl::string_view text) {
  Files().Write("usage/self/stat", TakePart(text, kSeparator));
  Files().Write("usage/stat", text);
  Files().Directory("usage/self/fd");
  (void)agent::ReadProcessUsage(Files().Path("usage"));
}

// route_localnet of all, and of an interface.
void CheckRouteLocalnet(absl::string_view text) {
  Files().Write("sysctls/ipv4/conf/all/route_localnet", TakePart(text, kSeparator));
  Files().Write("sysctls/ipv4/conf/eth0/route_localnet", text);
  const agent::RouteLocalnet setting = agent::ReadRouteLocalnet(Files().Path("sysctls"));
  KIPT_REQUIRE(setting.interfaces.size() <= 1);
}

void CheckAllowList(absl::string_view text) {
  const auto list = agent::ParseAllowList(text);
  if (!list.ok()) return KIPT_REQUIRE_REASON(list.status());
  for (const agent::AllowEntry& entry : *list) {
    const std::string printed = ToString(entry);
    const auto again = agent::ParseAllowList(printed.substr(printed.find(": ") + 2));
    KIPT_REQUIRE(again.ok() && again->size() == 1);
    const agent::AllowEntry& read = again->front();
    KIPT_REQUIRE(read.kind == entry.kind && read.iptables_mode == entry.iptables_mode &&
                 read.chain == entry.chain);
    // A text with " # " in it cannot be printed so that it is read: its end would be a reason.
    KIPT_REQUIRE(read.text == entry.text || absl::StrContains(printed, " # "));
  }
}

// What /usr/sbin/iptables points to, and what /etc/alternatives/iptables does.
void CheckHostProgram(absl::string_view text) {
  const bool linked = Linked("host/usr/sbin/iptables", TakePart(text, kSeparator)) &&
                      Linked("host/etc/alternatives/iptables", text);
  if (!linked) return;
  const agent::HostProgram program = agent::FindHostProgram(Files().Path("host"), Family::kIPv4);
  KIPT_REQUIRE(!program.text.empty() && program.mode.has_value());
}

// The entries of a legacy table: their hash does not depend on counters.
void CheckFamily(Family family, absl::string_view entries, size_t counters, size_t header) {
  const auto first = agent::HashEntries(family, std::string(entries));
  if (!first.ok()) return KIPT_REQUIRE_REASON(first.status());
  if (entries.empty()) return;
  KIPT_REQUIRE(entries.size() >= header);
  std::string counted(entries);
  counted[counters] = static_cast<char>(counted[counters] ^ 1);
  const auto second = agent::HashEntries(family, counted);
  KIPT_REQUIRE(second.ok() && *second == *first);
  std::string changed(entries);
  changed[0] = static_cast<char>(changed[0] ^ 1);
  const auto third = agent::HashEntries(family, changed);
  KIPT_REQUIRE(third.ok() && *third != *first);
}
void CheckLegacyEntries(absl::string_view entries) {
  CheckFamily(Family::kIPv4, entries, offsetof(ipt_entry, counters), sizeof(ipt_entry));
  CheckFamily(Family::kIPv6, entries, offsetof(ip6t_entry, counters), sizeof(ip6t_entry));
}

constexpr std::array<void (*)(absl::string_view), 11> kParsers = {
    CheckCniConfig,     CheckModules,       CheckTableNames, CheckVersion,
    CheckFailure,       CheckLegacyEntries, CheckWriter,     CheckUsage,
    CheckRouteLocalnet, CheckAllowList,     CheckHostProgram};

}  // namespace

// '0' and on: which of kParsers.
void FuzzNodeFiles(FuzzBytes input) {
  const size_t parser = TakeSelector(input, kParsers.size());
  kParsers[parser](AsText(input));
}

}  // namespace kipt::testing
