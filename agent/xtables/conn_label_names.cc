// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/conn_label_names.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "agent/process/files.h"
#include "agent/xtables/iptables_save.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

constexpr size_t kLargestFile = 64 << 10;
// libnetfilter_conntrack takes labels that the kernel does not have, and their names are taken.
constexpr uint64_t kLabelsWithNames = 1024;
// Its buffer without the NUL: a longer line is read as several.
constexpr size_t kLongestLine = 1023;

// Empty if it is no name.
std::string NameIn(absl::string_view rest) {
  const absl::string_view name = absl::StripAsciiWhitespace(rest.substr(0, rest.find('\n')));
  const bool sane = absl::c_all_of(name, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == ' ' || c == '-';
  });
  return sane ? std::string(name) : "";
}

// As iptables prints a label that has no name.
std::optional<int> PlainNumber(absl::string_view label) {
  int number = 0;
  if (!absl::SimpleAtoi(label, &number) || absl::StrCat(number) != label) return std::nullopt;
  return number;
}

// The label that is printed as `printed`; nothing for a number, and for an unknown name.
std::optional<int> LabelNamed(absl::string_view printed, const ConnLabelNames& names) {
  const auto named = names.find(std::string(printed));
  if (named == names.end() || named->second > netlink::kMostConnLabel) return std::nullopt;
  const std::optional<int> number = PlainNumber(printed);
  const bool has_name =
      absl::c_any_of(names, [&](const auto& name) { return name.second == number; });
  return number && !has_name ? std::nullopt : std::optional<int>(named->second);
}

// `rule`, which has these `words`, with numbers from `number_of`, which returns nothing for a label
// that is to stay unchanged.
std::string WithNumbers(absl::string_view rule, const std::vector<absl::string_view>& words,
                        absl::FunctionRef<std::optional<int>(absl::string_view)> number_of) {
  std::string result;
  const char* copied = rule.data();
  for (size_t at = 0; at + 3 < words.size(); ++at) {
    if (words[at] != "-m" || words[at + 1] != "connlabel") continue;
    const size_t option = at + (words[at + 2] == "!" ? 3 : 2);
    if (option + 1 >= words.size() || words[option] != "--label") continue;
    const absl::string_view word = words[option + 1];
    if (word.size() < 2 || word.front() != '"' || word.back() != '"') continue;
    const std::optional<int> label = number_of(word.substr(1, word.size() - 2));
    if (!label) continue;
    result.append(copied, word.data());
    absl::StrAppend(&result, "\"", *label, "\"");
    copied = word.data() + word.size();
  }
  return result.append(copied, rule.data() + rule.size());
}

struct NamesFile {
  int open_error = 0;                // of errno(3)
  absl::StatusOr<std::string> text;  // as of ReadToEnd
};

NamesFile ReadNamesFile(const std::string& path) {
  const std::string name = absl::StrCat(path, ", which names connection labels");
  // A FIFO without a writer must not block us.
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.valid()) return {.text = ReadToEnd(file.get(), name, kLargestFile)};
  const int error = errno;
  return {error, absl::ErrnoToStatus(error, absl::StrCat("reading ", name))};
}

// What to do about a file that could not be read.
std::string NamesFileProblem(const NamesFile& file, const std::string& path) {
  // open(2) can also end in this code, when descriptors have run out.
  if (file.open_error == 0 && absl::IsResourceExhausted(file.text.status())) {
    return absl::StrCat(path, " has more than ", kLargestFile >> 10,
                        " KiB, so the names of connection labels in it are not read: shorten or "
                        "remove it");
  }
  return absl::StrCat(file.text.status().message(), ": make it readable, or remove it");
}

}  // namespace

ConnLabelNames ParseConnLabelNames(absl::string_view text) {
  ConnLabelNames names;
  std::set<int> named;
  while (!text.empty()) {
    const size_t size = std::min(text.substr(0, kLongestLine).find('\n'), kLongestLine - 1) + 1;
    const std::string line(text.substr(0, size));
    text.remove_prefix(std::min(size, text.size()));
    char* end = nullptr;
    const uint64_t number = std::strtoul(line.c_str(), &end, 0);
    if (end == line.c_str() || number >= kLabelsWithNames) continue;
    const int label = static_cast<int>(number);
    std::string name = NameIn(end);
    if (name.empty() || named.count(label) != 0) continue;
    if (names.emplace(std::move(name), label).second) named.insert(label);
  }
  return names;
}

absl::StatusOr<ConnLabelNames> ReadConnLabelNames(const std::string& path) {
  const NamesFile file = ReadNamesFile(path);
  if (file.open_error == ENOENT || file.open_error == ENOTDIR) return ConnLabelNames();
  if (!file.text.ok()) return absl::FailedPreconditionError(NamesFileProblem(file, path));
  return ParseConnLabelNames(*file.text);
}

std::string ConnLabelNamesProblem(const std::string& path) {
  const NamesFile file = ReadNamesFile(path);
  if (file.open_error != 0) return "";
  // A directory, for example: iptables takes it for an empty file.
  if (!file.text.ok()) return NamesFileProblem(file, path);
  if (!ParseConnLabelNames(*file.text).empty()) return "";
  return absl::StrCat(path,
                      " names no connection label, so iptables cannot print rules that have one: "
                      "add a name, such as the line \"0 unused\", or remove the file");
}

absl::StatusOr<std::string> WithConnLabelNumbers(absl::string_view saved,
                                                 const absl::StatusOr<ConnLabelNames>& names) {
  bool all_known = true;
  const auto number_of = [&](absl::string_view printed) {
    if (names.ok()) return LabelNamed(printed, *names);
    all_known = all_known && PlainNumber(printed);
    return std::optional<int>();
  };
  std::string result;
  result.reserve(saved.size());
  std::vector<absl::string_view> words;
  while (!saved.empty()) {
    const bool is_rule = saved.front() == '-' || saved.front() == '[';
    const std::optional<size_t> size =
        is_rule ? SplitSavedRule(saved, words) : std::min(saved.find('\n'), saved.size());
    if (!size) break;
    const absl::string_view line = saved.substr(0, *size + 1);
    absl::StrAppend(&result, is_rule ? WithNumbers(line, words, number_of) : std::string(line));
    saved.remove_prefix(line.size());
  }
  if (!all_known) return names.status();
  return absl::StrCat(result, saved);
}

}  // namespace kipt::agent
