// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/completion.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/skew/matrix/cell.h"

namespace kipt::skew {
namespace {

using agent::CompletionFlag;
using agent::CompletionSpec;
using agent::CompletionValues;
using Kind = CompletionValues::Kind;

// CLI11 writes accepted values behind the type: "string:{text,json}", "int:INT in [1 - 256]".
std::string TypeOf(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  return name.substr(0, name.find(':'));
}

CompletionValues ValuesOf(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  const size_t open = name.find('{');
  if (open != std::string::npos && name.back() == '}') {
    const std::string words = name.substr(open + 1, name.size() - open - 2);
    return {.kind = Kind::kWords, .words = absl::StrSplit(words, ',')};
  }
  absl::string_view type = name;
  const bool list = absl::ConsumeSuffix(&type, ",...");
  if (type == "file") return {.kind = Kind::kFile, .words = {}, .list = list};
  if (type == "directory") return {.kind = Kind::kDirectory, .words = {}, .list = list};
  if (type == "path") {
    std::vector<std::string> paths = {"all"};
    for (const Path path : kAllPaths) paths.emplace_back(IdOf(path));
    return {.kind = Kind::kWords, .words = std::move(paths), .list = list};
  }
  return {};
}

CompletionFlag Describe(const CLI::Option& option) {
  CompletionFlag flag{.name = option.get_lnames().front(),
                      .shorthand = option.get_snames().empty() ? "" : option.get_snames().front(),
                      .is_bool = option.get_expected_max() == 0,
                      .type = {},
                      .help = option.get_description()};
  if (!flag.is_bool) {
    flag.type = TypeOf(option);
    flag.values = ValuesOf(option);
  }
  return flag;
}

// The flag of `spec` that is `flag`'s like in another command.
CompletionFlag* FindSame(CompletionSpec& spec, const CompletionFlag& flag) {
  const auto same =
      std::find_if(spec.flags.begin(), spec.flags.end(), [&flag](const CompletionFlag& each) {
        return each.name == flag.name && each.help == flag.help;
      });
  return same == spec.flags.end() ? nullptr : &*same;
}

void AddFlags(const CLI::App& command, CompletionSpec& spec) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) continue;
    CompletionFlag flag = Describe(*option);
    CompletionFlag* known = FindSame(spec, flag);
    if (known == nullptr) known = &spec.flags.emplace_back(std::move(flag));
    known->commands.push_back(command.get_name());
  }
}

}  // namespace

CompletionSpec DescribeCommandLine(const CLI::App& app, const char* default_command) {
  CompletionSpec spec{
      .program = app.get_name(), .commands = {}, .default_command = default_command, .flags = {}};
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* command : commands) {
    agent::CompletionCommand described{.name = command->get_name(),
                                       .help = command->get_description()};
    for (const CLI::Option* option : command->get_options()) {
      if (!option->get_lnames().empty()) continue;
      described.argument = option->get_name();
      described.argument_values = ValuesOf(*option);
    }
    spec.commands.push_back(std::move(described));
    AddFlags(*command, spec);
  }
  for (CompletionFlag& flag : spec.flags) {
    if (flag.commands.size() == commands.size()) flag.commands.clear();
  }
  return spec;
}

}  // namespace kipt::skew
