// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/mode_evidence.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/policy/rule_forms.h"
#include "agent/process/files.h"
#include "agent/xtables/iptables_legacy_run.h"
#include "agent/xtables/iptables_legacy_tables.h"
#include "netlink/backend.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::Table;

ChainId Mark(Family family, absl::string_view name) {
  return {.family = family, .table = Table::kMangle, .name = std::string(name)};
}

bool IsMark(const ChainId& chain) {
  return chain.table == Table::kMangle && (chain.name == kHintChain || chain.name == kCanaryChain);
}

ModeTraces Unreadable(const absl::Status& status) {
  return {.readable = false, .problem = std::string(status.message()), .rules = std::nullopt};
}

// Whether a kernel that says nothing can hold rules all the same.
ModeTraces Nothing(bool possible) { return {.possible = possible}; }

absl::Status LookForMarks(netlink::Backend& backend, Family family, ModeTraces& traces) {
  const std::vector<netlink::ChainQuery> queries = {
      {.chain = Mark(family, kHintChain), .with_rules = false},
      {.chain = Mark(family, kCanaryChain), .with_rules = false}};
  const absl::StatusOr<netlink::Snapshot> snapshot = backend.Read(queries);
  if (!snapshot.ok()) return snapshot.status();
  traces.hint = snapshot->Find(queries[0].chain) != nullptr;
  traces.canary = snapshot->Find(queries[1].chain) != nullptr;
  return absl::OkStatus();
}

// Hint and canary; rules are not looked for.
ModeTraces NftMarks(Family family, const ModeSources& sources) {
  if (const absl::Status status = CheckNftIsThere(sources); !status.ok()) {
    if (absl::IsUnavailable(status)) return Nothing(/*possible=*/false);
    return absl::IsFailedPrecondition(status) ? Nothing(/*possible=*/true) : Unreadable(status);
  }
  ModeTraces traces = {.rules = std::nullopt};
  BackendOrError backend = sources.open_nft();
  const absl::Status status =
      backend.ok() ? LookForMarks(**backend, family, traces) : backend.status();
  if (absl::IsUnavailable(status)) return Nothing(/*possible=*/false);
  return status.ok() ? traces : Unreadable(status);
}

void LookForNftRules(Family family, const ModeSources& sources, ModeTraces& traces) {
  const auto chains = sources.list_nft(family);
  if (!chains.ok()) {
    traces.problem = std::string(chains.status().message());
    return;
  }
  // iptables-nft makes all base chains of a table that it touches; they are nobody's trace.
  traces.rules = std::any_of(chains->begin(), chains->end(), [](const netlink::ListedChain& chain) {
    return chain.use > 0 || (!chain.base && !IsMark(chain.id));
  });
}

ModeTraces LegacyMarks(Family family, const ModeSources& sources) {
  const absl::StatusOr<std::vector<Table>> tables = RegisteredIptablesLegacyTables(family, sources);
  if (absl::IsUnavailable(tables.status())) return Nothing(/*possible=*/false);
  if (!tables.ok()) return Unreadable(tables.status());
  if (tables->empty()) return Nothing(/*possible=*/true);
  ModeTraces traces = {.rules = std::nullopt};
  if (std::find(tables->begin(), tables->end(), Table::kMangle) == tables->end()) return traces;
  BackendOrError backend = sources.open_legacy();
  const absl::Status status =
      backend.ok() ? LookForMarks(**backend, family, traces) : backend.status();
  return status.ok() ? traces : Unreadable(status);
}

void LookForLegacyRules(Family family, const ModeSources& sources, ModeTraces& traces) {
  const absl::StatusOr<ChainsByName> chains = sources.list_legacy(family);
  if (!chains.ok()) {
    traces.problem = std::string(chains.status().message());
    return;
  }
  traces.rules = std::any_of(chains->begin(), chains->end(), [](const auto& entry) {
    const auto& [id, chain] = entry;
    return !chain.rules.empty() || (!chain.hooked && !IsMark(id));
  });
}

bool IsMarked(const ModeTraces& traces) { return traces.hint || traces.canary; }

}  // namespace

ModeSources SystemModeSources(const std::optional<std::string>& host_root, CommandRunner* runner,
                              IptablesLegacyOptions legacy) {
  ModeSources sources;
  sources.host_root = host_root ? HostRoot{*host_root, ""} : OwnHostRoot();
  sources.kernel = SystemKernelPaths(sources.host_root.directory);
  sources.xt_compat = [kernel = sources.kernel](KernelSymbols symbols) {
    return ReadXtCompat(kernel, symbols);
  };
  sources.conn_label_match = [kernel = sources.kernel,
                              names = legacy.label_names_path](KernelSymbols symbols) {
    return ReadConnLabelMatch(kernel, names, symbols);
  };
  sources.open_nft = netlink::NewNftBackend;
  sources.list_nft = netlink::ListNftChains;
  sources.open_legacy = [runner, legacy] { return NewIptablesLegacyBackend(runner, legacy); };
  sources.list_legacy = [runner, legacy = std::move(legacy)](Family family) {
    return ListIptablesLegacyChains(family, *runner, legacy);
  };
  return sources;
}

absl::Status CheckNftIsThere(const ModeSources& sources) {
  switch (FindModule(sources.kernel, "nf_tables", "nft_do_chain")) {
    case ModuleState::kPresent:
    case ModuleState::kNothingToLoad:
      return absl::OkStatus();
    case ModuleState::kLoadable:
      return absl::FailedPreconditionError("nf_tables is not loaded");
    case ModuleState::kMissing:
      return absl::UnavailableError("this kernel has no nf_tables");
    case ModuleState::kUnknown:
      break;
  }
  return absl::UnknownError(
      "whether nf_tables is there cannot be told without loading it; make /lib/modules readable, "
      "or give --iptables-mode");
}

absl::StatusOr<std::vector<std::string>> IptablesLegacyTableNames(Family family,
                                                                  const ModeSources& sources) {
  const std::string name(netlink::FamilyName(family));
  const std::string path = PathOfFamily(sources.table_names_path, family);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (text.ok()) return std::vector<std::string>(absl::StrSplit(*text, '\n', absl::SkipEmpty()));
  if (!absl::IsNotFound(text.status())) return text.status();
  // The file comes with the module. (Where proc(5) is not mounted there are no modules either.)
  switch (FindModule(sources.kernel, name + "_tables",
                     name == "ip" ? "ipt_do_table" : "ip6t_do_table")) {
    case ModuleState::kPresent:
      return absl::UnknownError(absl::StrCat(path, " is missing, although the kernel has ", name,
                                             "_tables; is /proc mounted?"));
    case ModuleState::kNothingToLoad:
    case ModuleState::kMissing:
      return absl::UnavailableError(absl::StrCat("this kernel has no ", name, "_tables"));
    case ModuleState::kLoadable:
    case ModuleState::kUnknown:
      break;
  }
  return std::vector<std::string>();
}

absl::StatusOr<std::vector<Table>> RegisteredIptablesLegacyTables(Family family,
                                                                  const ModeSources& sources) {
  const absl::StatusOr<std::vector<std::string>> names = IptablesLegacyTableNames(family, sources);
  if (!names.ok()) return names.status();
  std::vector<Table> tables;
  for (const Table table : netlink::kTables) {
    if (std::find(names->begin(), names->end(), netlink::TableName(table)) != names->end()) {
      tables.push_back(table);
    }
  }
  return tables;
}

ModeQuestion GatherEvidence(Family family, std::optional<IptablesMode> flag,
                            const ModeSources& sources, Thoroughness thoroughness) {
  ModeQuestion question = {.family = family, .flag = flag};
  question.program_text = sources.host_root.problem;
  if (!sources.host_root.directory.empty()) {
    HostProgram program = FindHostProgram(sources.host_root.directory, family);
    question.program = program.mode;
    question.program_text = std::move(program.text);
  }
  question.nft = NftMarks(family, sources);
  question.legacy = LegacyMarks(family, sources);
  const bool told = flag.has_value() || IsMarked(question.nft) || IsMarked(question.legacy);
  if (told && thoroughness == Thoroughness::kUntilDecided) return question;
  if (question.nft.readable && !question.nft.rules) LookForNftRules(family, sources, question.nft);
  if (question.legacy.readable && !question.legacy.rules) {
    LookForLegacyRules(family, sources, question.legacy);
  }
  return question;
}

std::vector<FamilyMode> DetectModes(absl::Span<const Family> families,
                                    std::optional<IptablesMode> flag, const ModeSources& sources,
                                    Thoroughness thoroughness) {
  std::vector<FamilyMode> modes;
  modes.reserve(families.size());
  for (const Family family : families) {
    modes.push_back(DecideMode(GatherEvidence(family, flag, sources, thoroughness)));
  }
  return modes;
}

}  // namespace kipt::agent
