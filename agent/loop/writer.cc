// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/process/files.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

// linux/proc_ns.h: PROC_PID_INIT_INO.
constexpr char kInitialPidNamespace[] = "pid:[4026531836]";

constexpr size_t kMaxCommandLine = 256;
constexpr absl::string_view kCut = "...";
// Every byte of an argument is at least one in the result, so more need not be read.
constexpr size_t kCommandLineBytes = 320;
// Enough for the longest file, cgroups(7): 13 hierarchies, one a line, with paths of some 200
// bytes.
constexpr size_t kMostBytes = 8192;

constexpr size_t kContainerIdDigits = 64;
constexpr size_t kShownDigits = 12;
constexpr size_t kPodUidDigits = 32;

// The first `limit` bytes of the file. Empty where it cannot be read.
std::string ReadStart(int directory, const std::string& name, size_t limit = kMostBytes) {
  const OwnedFd file(openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(limit, '\0');
  size_t size = 0;
  for (;;) {
    const ssize_t got = read(file.get(), text.data() + size, limit - size);
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

// To be put in double quotes.
std::string Escaped(absl::string_view text) {
  const std::string quoted = GoQuote(text);
  return quoted.substr(1, quoted.size() - 2);
}

// The arguments of /proc/PID/cmdline as a shell would take them, in one line.
std::string CommandLine(absl::string_view bytes) {
  // Each ends with a NUL; with many, where a program has overwritten its own.
  while (!bytes.empty() && bytes.back() == '\0') bytes.remove_suffix(1);
  if (bytes.empty()) return "";
  std::string line;
  // How much may stay before "...", without cutting an escape.
  size_t fitting = 0;
  const auto add = [&](absl::string_view text) {
    line.append(text.data(), text.size());
    if (line.size() <= kMaxCommandLine - kCut.size()) fitting = line.size();
  };
  for (const absl::string_view argument : absl::StrSplit(bytes, '\0')) {
    if (!line.empty()) add(" ");
    const bool quoted = argument.empty() || absl::StrContains(argument, ' ');
    if (quoted) add("'");
    for (size_t i = 0; i < argument.size();) {
      const size_t length = FirstRune(argument.substr(i)).length;
      add(argument[i] == '\'' ? "\\'" : Escaped(argument.substr(i, length)));
      i += length;
    }
    if (quoted) add("'");
  }
  if (line.size() <= kMaxCommandLine) return line;
  return absl::StrCat(line.substr(0, fitting), kCut);
}

std::string ReadComm(int directory, const std::string& name) {
  return std::string(absl::StripSuffix(ReadStart(directory, name), "\n"));
}

// proc_pid_stat(5): "4242 (comm) S 4200 ...", where comm may itself be ") R 1 (". 0 where it cannot
// be read.
uint32_t ReadParent(int process) {
  const std::string text = ReadStart(process, "stat");
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(text.rfind(')') + 1), ' ');
  uint32_t parent = 0;
  return fields.size() >= 3 && absl::SimpleAtoi(fields[2], &parent) ? parent : 0;
}

bool IsHex(absl::string_view text) {
  return absl::c_all_of(text, [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

// "pod12345678-1234-1234-1234-123456789abc" (cgroupfs), "kubepods-burstable-pod12345678_1234...
// .slice" (systemd); a static pod's is 32 digits.
std::string PodOf(absl::string_view part) {
  // containerd without its systemd driver under a kubelet with it:
  // "kubepods-...-podUID.slice:cri-containerd:ID".
  part = part.substr(0, part.find(".slice"));
  part.remove_prefix(part.rfind("-pod") + 1);
  if (!absl::ConsumePrefix(&part, "pod")) return "";
  std::string uid = absl::StrReplaceAll(part, {{"_", "-"}});
  const std::string digits = absl::StrReplaceAll(uid, {{"-", ""}});
  return digits.size() == kPodUidDigits && IsHex(digits) ? uid : "";
}

// "docker-ID.scope", "cri-containerd-ID.scope"; "ID", "crio-ID", "...:cri-containerd:ID" where
// systemd does not manage them.
absl::string_view ContainerOf(absl::string_view part) {
  absl::ConsumeSuffix(&part, ".scope");
  part.remove_prefix(part.find_last_of("-:") + 1);
  if (part.size() != kContainerIdDigits || !IsHex(part)) return "";
  return part.substr(0, kShownDigits);
}

std::string UnitOfPath(absl::string_view path) {
  absl::ConsumeSuffix(&path, " (deleted)");
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  std::string container;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    // The innermost of nested containers counts.
    if (container.empty()) {
      const absl::string_view id = ContainerOf(*part);
      if (!id.empty()) container = absl::StrCat("container ", id);
    }
    if (const std::string pod = PodOf(*part); !pod.empty()) {
      return absl::StrCat(container, container.empty() ? "pod " : " of pod ", pod);
    }
    if (container.empty() &&
        (absl::EndsWith(*part, ".service") || absl::EndsWith(*part, ".scope"))) {
      return Printable(*part);
    }
  }
  return container;
}

// A line for each hierarchy: "ID:CONTROLLERS:PATH". That of systemd and of cgroup v2 (no
// controllers) knows most, but a container made without systemd may be in the others only.
std::string UnitOf(const std::string& cgroup) {
  std::string other;
  for (const absl::string_view line : absl::StrSplit(cgroup, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() < 3) continue;
    std::string unit = UnitOfPath(fields[2]);
    if (unit.empty()) continue;
    if (fields[1].empty() || fields[1] == "name=systemd") return unit;
    other = std::move(unit);
  }
  return other;
}

}  // namespace

Writer IdentifyWriter(const netlink::RulesetChange& change, const WriterSources& sources) {
  Writer writer{.pid = change.pid};
  if (!change.command.empty()) writer.command = Escaped(change.command);
  std::error_code none;
  const auto pid_namespace = std::filesystem::read_symlink(sources.pid_namespace, none);
  if (pid_namespace != kInitialPidNamespace) return writer;
  // Refers to one process, even if its ID is given to another one.
  const OwnedFd process(
      open(absl::StrCat(sources.proc, "/", change.pid).c_str(), O_PATH | O_CLOEXEC));
  if (ReadComm(process.get(), "comm") != change.command) return writer;
  Writer found = writer;
  found.command_line = CommandLine(ReadStart(process.get(), "cmdline", kCommandLineBytes));
  found.unit = UnitOf(ReadStart(process.get(), "cgroup"));
  found.parent_pid = ReadParent(process.get());
  found.parent_command =
      Escaped(ReadComm(AT_FDCWD, absl::StrCat(sources.proc, "/", found.parent_pid, "/comm")));
  // It may have become another program meanwhile. If it has ended (empty), what was read counts.
  const std::string comm = ReadComm(process.get(), "comm");
  return comm.empty() || comm == change.command ? found : writer;
}

std::optional<bool> KubeProxyAmong(absl::Span<const Writer> writers, const WriterSources& sources) {
  std::optional<bool> lives;
  for (const Writer& writer : writers) {
    if (writer.parent_command != "kube-proxy") continue;
    std::error_code none;
    lives = lives.value_or(false) ||
            std::filesystem::exists(absl::StrCat(sources.proc, "/", writer.parent_pid), none);
  }
  return lives;
}

}  // namespace kipt::agent
