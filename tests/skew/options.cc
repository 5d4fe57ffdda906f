// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/options.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <regex>
#include <thread>
#include <utility>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Error.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "featuregates/known_features.h"

namespace kipt::skew {
namespace {

constexpr char kAgentName[] = "kube-iptables-agent";

// As given: what is still to be checked.
struct Words {
  std::string paths;
  std::string agent;
  std::string a = "kubelet";
  std::string b = "agent";
};

std::string IdsOf(const std::vector<Path>& paths) {
  return absl::StrJoin(paths, ", ",
                       [](std::string* out, Path path) { absl::StrAppend(out, IdOf(path)); });
}

absl::StatusOr<std::vector<Path>> ParsePaths(const std::string& text, bool full) {
  if (text.empty() && !full) return MainPaths();
  if (text.empty()) return AllPaths();
  std::vector<Path> paths;
  for (absl::string_view id : absl::StrSplit(text, ',')) {
    const std::vector<Path> all = AllPaths();
    const auto path =
        std::find_if(all.begin(), all.end(), [id](Path each) { return id == IdOf(each); });
    if (id == "all") return all;
    if (path == all.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--paths: there is no path \"", id, "\"; there are ", IdsOf(AllPaths()), ", and all"));
    }
    paths.push_back(*path);
  }
  return paths;
}

absl::StatusOr<Version> ParseMinor(const char* flag, const std::string& text) {
  absl::StatusOr<Version> version = featuregates::ParseVersion(text);
  if (!version.ok() || *version < kOldest || *version > kNewest) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": \"", text, "\" is not a version from ", featuregates::ToString(kOldest), " to ",
        featuregates::ToString(kNewest), ", such as 1.27"));
  }
  return version;
}

// "1.31", or as cells' names have it "1.27-gate-off".
absl::StatusOr<KubeletVersion> ParseKubelet(const char* flag, absl::string_view text) {
  KubeletVersion kubelet;
  if (absl::ConsumeSuffix(&text, "-gate-on")) kubelet.ownership_cleanup = true;
  if (absl::ConsumeSuffix(&text, "-gate-off")) kubelet.ownership_cleanup = false;
  absl::StatusOr<Version> version = ParseMinor(flag, std::string(text));
  if (!version.ok()) return version.status();
  kubelet.version = *version;
  if (kubelet.ownership_cleanup.has_value() && !Does(*version, Trait::kGateSettable)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": kubelet ", text, " has no gate that can be set"));
  }
  return kubelet;
}

absl::StatusOr<Side> ParseSide(const char* flag, const std::string& text,
                               const std::string& agent_program) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  const auto& [kind, which] = parts;
  const bool alone = text == kind;
  Side side;
  if (kind == NameOf(Actor::kKubelet) && alone) return side;
  if (kind == NameOf(Actor::kKubelet)) {
    absl::StatusOr<KubeletVersion> version = ParseKubelet(flag, which);
    if (!version.ok()) return version.status();
    side.version = *version;
    return side;
  }
  if (kind != NameOf(Actor::kAgent) || (which.empty() && !alone)) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": \"", text,
        "\" is none of kubelet, kubelet:VERSION, agent and agent:FILE, such as kubelet:1.31"));
  }
  side.actor = Actor::kAgent;
  // The workers' working directory is none of the user's business.
  std::error_code error;
  side.program = std::filesystem::absolute(alone ? agent_program : which, error).string();
  return side;
}

// An option with a text that is checked later, or a file.
struct TextOption {
  const char* name;
  std::string* value;
  const char* type;
  std::string help;
};

void Add(CLI::App& app, const std::vector<TextOption>& options) {
  for (const TextOption& option : options) {
    app.add_option(option.name, *option.value, option.help)->type_name(option.type);
  }
}

void AddCellFlags(CLI::App& app, Options& options, Words& words) {
  app.add_flag(
      "--full", options.full,
      absl::StrCat("Every pair of versions from ", featuregates::ToString(kOldest), " to ",
                   featuregates::ToString(kNewest),
                   " on every path, instead of one version of each generation. Takes hours."));
  Add(app,
      {{"--paths", &words.paths, "path,...",
        absl::StrCat("Comma-separated: ", IdsOf(AllPaths()), ", or all. (default ",
                     IdsOf(MainPaths()), ")")},
       {"--cells", &options.cells, "regex",
        "Only cells with a name that matches this regular expression, such as /nft/agent$. list "
        "shows the names."},
       {"--a", &words.a, "side",
        "Who keeps kubelet's chains on side A of each cell. kubelet is the cell's own, agent that "
        "of --agent. Also kubelet:VERSION and agent:FILE. (default kubelet)"},
       {"--b", &words.b, "side",
        "The same of side B, which must in no cell be worse than A. (default agent)"}});
}

void AddRunFlags(CLI::App& app, Options& options, Words& words) {
  Add(app,
      {{"--agent", &words.agent, "file",
        "The kube-iptables-agent to test, if a chosen cell runs it. (default: in the directory "
        "of this program, then /usr/sbin/kube-iptables-agent)"}});
  app.add_option("--jobs", options.jobs,
                 "How many cells run at the same time. (default: one per CPU)")
      ->check(CLI::Range(1, 256))
      ->type_name("int");
  Add(app,
      {{"--json", &options.json_file, "file", "Write the report to this file, as JSON."},
       {"--html", &options.html_file, "file", "Write the report to this file, as one HTML page."}});
}

constexpr char kAbout[] =
    "Sends real packets through a node with every pair of kubelet and kube-proxy versions. "
    "kubelet's chains are kept by kubelet, then by kube-iptables-agent.";

std::string DefaultAgent(const std::string& program) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path folder =
      error ? std::filesystem::path(program).parent_path() : self.parent_path();
  const std::filesystem::path sibling = folder / kAgentName;
  if (std::filesystem::exists(sibling, error)) return sibling.string();
  return absl::StrCat("/usr/sbin/", kAgentName);
}

// Into `value`, unless something was wrong before.
template <typename Value>
void Take(absl::StatusOr<Value> parsed, Value& value, absl::Status& status) {
  if (!parsed.ok()) return status.Update(parsed.status());
  value = *std::move(parsed);
}

absl::Status Finish(const std::string& program, const Words& words, Options& options) {
  absl::Status status;
  Take(ParsePaths(words.paths, options.full), options.paths, status);
  if (options.jobs == 0) {
    options.jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }
  const std::string agent = words.agent.empty() ? DefaultAgent(program) : words.agent;
  Take(ParseSide("--a", words.a, agent), options.sides.a, status);
  Take(ParseSide("--b", words.b, agent), options.sides.b, status);
  // A kubelet's cells run without one, too.
  std::error_code error;
  for (Side* side : {&options.sides.a, &options.sides.b}) {
    if (!side->program.empty() || !std::filesystem::exists(agent, error)) continue;
    side->program = std::filesystem::absolute(agent, error).string();
  }
  return status;
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::string& program,
                                     const std::vector<std::string>& arguments) {
  Options options;
  Words words;
  try {
    CLI::App app(kAbout, "kube-iptables-skew");
    app.require_subcommand(0, 1);
    CLI::App* run = app.add_subcommand("run", "Run the matrix (the default).");
    CLI::App* list =
        app.add_subcommand("list", "Show the names of the cells and the purpose of each.");
    CLI::App* version = app.add_subcommand("version", "Show the version of this program.");
    for (CLI::App* each : {&app, run, list}) AddCellFlags(*each, options, words);
    for (CLI::App* each : {&app, run}) AddRunFlags(*each, options, words);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
      app.parse(std::move(reversed));
    } catch (const CLI::CallForHelp&) {
      options.command = Options::Command::kHelp;
      options.help = app.help();
      return options;
    }
    if (list->parsed()) options.command = Options::Command::kList;
    if (version->parsed()) options.command = Options::Command::kVersion;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(error.what(), "; see kube-iptables-skew --help"));
  }
  if (absl::Status status = Finish(program, words, options); !status.ok()) return status;
  return options;
}

absl::StatusOr<std::vector<Cell>> ChosenCells(const Options& options) {
  std::vector<Cell> cells =
      OnSides(options.full ? AllCells(options.paths) : DefaultCells(options.paths), options.sides);
  if (!options.cells.empty()) {
    std::optional<std::regex> pattern;
    try {
      pattern.emplace(options.cells);
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(absl::StrCat("--cells: ", error.what()));
    }
    std::erase_if(
        cells, [&pattern](const Cell& cell) { return !std::regex_search(CellId(cell), *pattern); });
  }
  if (!cells.empty()) return cells;
  return absl::InvalidArgumentError(absl::StrCat(
      "--cells=", options.cells, " finds no cell; kube-iptables-skew list shows their names"));
}

}  // namespace kipt::skew
