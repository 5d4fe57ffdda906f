// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/options.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
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
#include "agent/report/colors.h"
#include "featuregates/known_features.h"
#include "tests/skew/report/report_parts.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

constexpr char kAgentName[] = "kube-iptables-agent";

// As given: what is still to be checked.
struct Words {
  std::string paths;
  std::string agent;
  std::string proxy_version;
  std::string kubelet_version;
  std::string a = "kubelet";
  std::string b = "agent";
  std::string stale_chains = "retire";
  std::string color = "auto";
};

// CLI11 2.3 leaves lines as long as they are.
class WrappingFormatter : public CLI::Formatter {
 public:
  WrappingFormatter() { column_width(kNames); }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = Wrapped("", "", CLI::Formatter::make_option_desc(option), kColumns - kNames);
    text.pop_back();
    return text;
  }

 private:
  static constexpr size_t kColumns = 100;
  static constexpr size_t kNames = 30;
};

std::vector<Path> AllPaths() { return {std::begin(kAllPaths), std::end(kAllPaths)}; }

std::string IdsOf(const std::vector<Path>& paths) {
  return absl::StrJoin(paths, ", ",
                       [](std::string* out, Path path) { absl::StrAppend(out, IdOf(path)); });
}

absl::StatusOr<std::vector<Path>> ParsePaths(const std::string& text, bool full) {
  if (text.empty() && !full) return MainPaths();
  if (text.empty()) return AllPaths();
  std::vector<Path> paths;
  for (absl::string_view id : absl::StrSplit(text, ',')) {
    const auto* path = std::find_if(std::begin(kAllPaths), std::end(kAllPaths),
                                    [id](Path each) { return id == IdOf(each); });
    if (id == "all") return AllPaths();
    if (path == std::end(kAllPaths)) {
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

void AddCellFlags(CLI::App& app, Options& options, Words& words) {
  app.add_flag(
      "--full", options.full,
      absl::StrCat("Every pair of versions from ", featuregates::ToString(kOldest), " to ",
                   featuregates::ToString(kNewest),
                   " on every path, instead of one version of each generation. Takes hours."));
  app.add_option("--paths", words.paths,
                 absl::StrCat("Comma-separated: ", IdsOf(AllPaths()), ", or all. (default ",
                              IdsOf(MainPaths()), ")"))
      ->type_name("path,...");
  app.add_option("--cells", options.cells,
                 "Only cells with a name that matches this regular expression, such as "
                 "/nft/agent$. list shows the names.")
      ->type_name("regex");
  app.add_option(
         "--a", words.a,
         "Who keeps kubelet's chains on side A of each cell. kubelet is the cell's own, agent "
         "that of --agent. Also kubelet:VERSION and agent:FILE. (default kubelet)")
      ->type_name("side");
  app.add_option("--b", words.b,
                 "The same of side B, which must in no cell be worse than A. (default agent)")
      ->type_name("side");
  app.add_option(
         "--kubelet-program", options.harness.kubelet_program,
         "A program to run as kubelet, without arguments: a script that starts a kubelet and its "
         "container runtime. It runs in the cells with a kubelet that writes the same rules, and "
         "only these cells run.")
      ->type_name("file");
  app.add_option("--kubelet-version", words.kubelet_version,
                 "As which version --kubelet-program is judged, such as 1.20 or 1.27-gate-off.")
      ->type_name("version");
  app.add_option(
         "--proxy-program", options.harness.proxy_program,
         "A kube-proxy to run, against an API server of the harness. It runs in the cells with "
         "a kube-proxy that writes the same rules in iptables or nftables mode, and only "
         "these cells run.")
      ->type_name("file");
  app.add_option("--proxy-version", words.proxy_version,
                 "As which version --proxy-program is judged, such as 1.20. (default: what its "
                 "--version prints)")
      ->type_name("version");
}

void AddRunFlags(CLI::App& app, Options& options, Words& words) {
  app.add_option("--agent", words.agent,
                 "The kube-iptables-agent to test, if a chosen cell runs it. (default: in the "
                 "directory of this program, then /usr/sbin/kube-iptables-agent)")
      ->type_name("file");
  app.add_option("--stale-chains", words.stale_chains,
                 "keep or retire: the agent's --stale-chains. (default retire)")
      ->check(CLI::IsMember({"keep", "retire"}))
      ->type_name("string");
  app.add_option("--iptables-chroots", options.harness.chroot_dir,
                 "Where Debian 11 and 13 are unpacked, as bullseye and trixie, for their iptables. "
                 "Without it, cells that need them are skipped and counted as left out.")
      ->type_name("directory");
  app.add_option("--jobs", options.jobs,
                 "How many cells run at the same time. (default: one per CPU)")
      ->check(CLI::Range(1, 256))
      ->type_name("int");
  app.add_option("--stream-rate", options.harness.stream_rate,
                 "Packets per second of each stream that runs during the steps. (default 200)")
      ->check(CLI::Range(10, 2000))
      ->type_name("int");
  app.add_option("--json", options.json_file, "Write the report to this file, as JSON.")
      ->type_name("file");
  app.add_option("--html", options.html_file, "Write the report to this file, as one HTML page.")
      ->type_name("file");
  app.add_option("--color,--colour", words.color,
                 "auto, always or never. auto colours on a terminal, unless NO_COLOR is set or "
                 "TERM is dumb. (default auto)")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("string");
}

constexpr char kAbout[] =
    "Sends real packets through a node with every pair of kubelet and kube-proxy versions. "
    "kubelet's chains are kept by kubelet, then by kube-iptables-agent.";

struct Commands {
  CLI::App* list;
  CLI::App* version;
};

Commands AddCommands(CLI::App& app, Options& options, Words& words) {
  app.formatter(std::make_shared<WrappingFormatter>());
  app.require_subcommand(0, 1);
  CLI::App* run = app.add_subcommand("run", "Run the matrix (the default).");
  Commands commands = {};
  commands.list =
      app.add_subcommand("list", "Show the names of the cells and the purpose of each.");
  commands.version = app.add_subcommand("version", "Show the version of this program.");
  for (CLI::App* each : {&app, run}) {
    AddCellFlags(*each, options, words);
    AddRunFlags(*each, options, words);
  }
  AddCellFlags(*commands.list, options, words);
  return commands;
}

std::string DefaultAgent(const std::string& program) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path folder =
      error ? std::filesystem::path(program).parent_path() : self.parent_path();
  const std::filesystem::path beside = folder / kAgentName;
  if (std::filesystem::exists(beside, error)) return beside.string();
  return absl::StrCat("/usr/sbin/", kAgentName);
}

// "Kubernetes v1.36.3" prints a release; what was built by hand may print anything.
absl::StatusOr<Version> ParseProxyVersion(const std::string& given, const std::string& program) {
  if (!given.empty()) return ParseMinor("--proxy-version", given);
  const testing::ProgramResult asked = testing::RunProgram({program, "--version"});
  std::smatch found;
  const std::regex release(R"(v(1\.[0-9]+)\.)");
  if (!std::regex_search(asked.out, found, release)) {
    return absl::InvalidArgumentError(
        absl::StrCat(program,
                     " --version does not print a release of Kubernetes; give "
                     "--proxy-version the version as which to judge it"));
  }
  return ParseMinor("--proxy-version", found[1].str());
}

absl::Status Finish(const std::string& program, const Words& words, Options& options) {
  absl::StatusOr<std::vector<Path>> paths = ParsePaths(words.paths, options.full);
  if (!paths.ok()) return paths.status();
  options.paths = *std::move(paths);
  options.harness.retire = words.stale_chains == "retire";
  options.color = agent::UsesColors(words.color);
  if (options.jobs == 0) {
    options.jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }
  const std::string agent = words.agent.empty() ? DefaultAgent(program) : words.agent;
  absl::StatusOr<Side> a = ParseSide("--a", words.a, agent);
  if (!a.ok()) return a.status();
  absl::StatusOr<Side> b = ParseSide("--b", words.b, agent);
  if (!b.ok()) return b.status();
  options.sides = {*std::move(a), *std::move(b)};
  std::error_code error;
  // kubelet's cells run without one, too.
  if (std::filesystem::exists(agent, error)) {
    options.harness.audit_program = std::filesystem::absolute(agent, error).string();
  }
  // The workers' working directory is another.
  for (std::string* path : {&options.harness.kubelet_program, &options.harness.proxy_program,
                            &options.harness.chroot_dir}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path, error).string();
  }
  if (!options.harness.kubelet_program.empty()) {
    absl::StatusOr<KubeletVersion> version =
        ParseKubelet("--kubelet-version", words.kubelet_version);
    if (!version.ok()) return version.status();
    options.harness.kubelet_version = *version;
  }
  if (!options.harness.proxy_program.empty()) {
    absl::StatusOr<Version> version =
        ParseProxyVersion(words.proxy_version, options.harness.proxy_program);
    if (!version.ok()) return version.status();
    options.harness.proxy_version = *version;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::string& program,
                                     const std::vector<std::string>& arguments) {
  Options options;
  Words words;
  try {
    CLI::App app(kAbout, "kube-iptables-skew");
    const Commands commands = AddCommands(app, options, words);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
      app.parse(std::move(reversed));
    } catch (const CLI::CallForHelp&) {
      options.command = Options::Command::kHelp;
      options.help = app.help();
      return options;
    }
    if (commands.list->parsed()) options.command = Options::Command::kList;
    if (commands.version->parsed()) options.command = Options::Command::kVersion;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(error.what(), "; see kube-iptables-skew --help"));
  }
  absl::Status status = Finish(program, words, options);
  if (!status.ok()) return status;
  return options;
}

absl::StatusOr<Choice> ChosenCells(const Options& options) {
  std::vector<Cell> cells =
      OnSides(options.full ? AllCells(options.paths) : DefaultCells(options.paths), options.sides);
  if (!options.cells.empty()) {
    std::optional<std::regex> wanted;
    try {
      wanted.emplace(options.cells);
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(absl::StrCat("--cells: ", error.what()));
    }
    std::erase_if(
        cells, [&wanted](const Cell& cell) { return !std::regex_search(CellId(cell), *wanted); });
  }
  if (!options.harness.proxy_program.empty()) {
    std::erase_if(
        cells, [&options](const Cell& cell) { return !RunsProxyProgram(options.harness, cell); });
  }
  if (!options.harness.kubelet_program.empty()) {
    std::erase_if(
        cells, [&options](const Cell& cell) { return !RunsKubeletProgram(options.harness, cell); });
  }
  Choice choice;
  const bool no_chroots =
      options.harness.chroot_dir.empty() && options.command == Options::Command::kRun;
  for (Cell& cell : cells) {
    const std::string release = ChrootOf(cell.company);
    if (!no_chroots || release.empty()) {
      choice.cells.push_back(std::move(cell));
      continue;
    }
    choice.left_out.push_back(
        {.id = CellId(cell),
         .path = NameOf(cell.path),
         .why = absl::StrCat("no iptables of Debian's release ", release,
                             ": --iptables-chroots=DIRECTORY names where it is unpacked")});
  }
  if (!choice.cells.empty()) return choice;
  return absl::InvalidArgumentError(
      choice.left_out.empty()
          ? absl::StrCat("--cells=", options.cells, " finds no cell",
                         options.harness.kubelet_program.empty()
                             ? ""
                             : absl::StrCat(" with a kubelet like ",
                                            ToString(options.harness.kubelet_version)),
                         options.harness.proxy_program.empty()
                             ? ""
                             : absl::StrCat(" with a kube-proxy like ",
                                            featuregates::ToString(options.harness.proxy_version)),
                         "; kube-iptables-skew list shows their names")
          : absl::StrCat("--cells=", options.cells, " finds ", choice.left_out.size(),
                         " cells, and none can be run: ", choice.left_out.front().why));
}

}  // namespace kipt::skew
