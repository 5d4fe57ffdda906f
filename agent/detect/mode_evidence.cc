// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/mode_evidence.h"

#include <array>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/detect/routing.h"
#include "agent/policy/martians.h"
#include "agent/policy/ownership.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "agent/process/files.h"
#include "agent/xtables/iptables_legacy_programs.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::Table;

bool IsMark(const ChainId& chain) {
  return chain.table == Table::kMangle && (chain.name == kHintChain || chain.name == kCanaryChain);
}

ModeTraces Unreadable(const absl::Status& status) {
  return {.problem = std::string(status.message()),
          .hint = std::nullopt,
          .canary = std::nullopt,
          .rules = std::nullopt};
}

// ModeTraces::kubelet_chain, in what KubeletQueries read. Where kube-proxy lives, a rule that both
// write is its own; and what `kube-proxy --cleanup` leaves in table nat has no owner.
std::string KubeletChain(const netlink::Snapshot& snapshot, Family family) {
  const bool claimed = IsClaimedByKubeProxy(snapshot, family);
  for (const DesiredChain& known : EveryKubeletChain(family)) {
    const netlink::ObservedChain* chain = snapshot.Find(known.id);
    if (chain == nullptr || IsMark(known.id)) continue;
    const auto is_kubelets = [&](const netlink::ObservedRule& rule) {
      const std::optional<KubeletForm> form =
          rule.rule() == nullptr ? std::nullopt : RecognizeKubeletForm(known.id, *rule.rule());
      return form &&
             (!form->shared_with_kube_proxy || (!claimed && known.id.table == Table::kFilter));
    };
    if (known.id.name == kCanaryChain || absl::c_any_of(chain->rules, is_kubelets)) {
      return absl::StrCat(netlink::TableName(known.id.table), " ", known.id.name);
    }
  }
  return "";
}

std::vector<netlink::ChainQuery> KubeletQueries(Family family) {
  std::vector<netlink::ChainQuery> queries = ChainsToRead({&family, 1});
  for (netlink::ChainQuery& query : queries) query.follow = false;
  return queries;
}

// Reads hint and canary, not rules; with `kubelets` also kubelet_chain.
absl::Status FindTraces(const BackendOrError& backend, Family family, bool kubelets,
                        ModeTraces& traces) {
  if (!backend.ok()) return backend.status();
  const auto query = [&](absl::string_view name) -> netlink::ChainQuery {
    return {.chain = {.family = family, .table = Table::kMangle, .name = std::string(name)},
            .with_rules = false};
  };
  const std::array marks = {query(kHintChain), query(kCanaryChain)};
  const absl::StatusOr<netlink::Snapshot> snapshot =
      kubelets ? (*backend)->Read(KubeletQueries(family)) : (*backend)->Read(marks);
  if (!snapshot.ok()) return snapshot.status();
  traces.hint = snapshot->Find(marks[0].chain) != nullptr;
  traces.canary = snapshot->Find(marks[1].chain) != nullptr;
  if (kubelets) traces.kubelet_chain = KubeletChain(*snapshot, family);
  return absl::OkStatus();
}

ModeTraces NftMarks(Family family, const ModeSources& sources, bool kubelets) {
  ModeTraces traces = {.rules = std::nullopt};
  absl::Status status = CheckNftIsThere(sources);
  if (absl::IsFailedPrecondition(status)) return {};
  if (status.ok()) status = FindTraces(sources.open_nft(), family, kubelets, traces);
  if (absl::IsUnavailable(status)) return {.possible = false};
  return status.ok() ? traces : Unreadable(status);
}

ModeTraces LegacyMarks(Family family, const ModeSources& sources, bool kubelets) {
  const absl::StatusOr<std::vector<std::string>> names = IptablesLegacyTableNames(family, sources);
  if (absl::IsUnavailable(names.status())) return {.possible = false};
  if (!names.ok()) return Unreadable(names.status());
  const auto has = [&](Table table) { return absl::c_linear_search(*names, TableName(table)); };
  if (absl::c_none_of(netlink::kTables, has)) return {};
  ModeTraces traces = {.rules = std::nullopt};
  if (!has(Table::kMangle) && !kubelets) return traces;
  const absl::Status status = FindTraces(sources.open_legacy(), family, kubelets, traces);
  return status.ok() || !has(Table::kMangle) ? traces : Unreadable(status);
}

// Base chains alone are no trace: iptables-nft makes all of a table that it touches.
bool ShowsUse(const netlink::ListedChain& chain) {
  return chain.use > 0 || (!chain.base && !IsMark(chain.id));
}

void FindRules(const ChainsOrError& chains, ModeTraces& traces) {
  if (!chains.ok()) {
    traces.problem = std::string(chains.status().message());
    return;
  }
  traces.rules = absl::c_any_of(*chains, ShowsUse);
}

bool IsMarked(const ModeTraces& traces) { return traces.hint == true || traces.canary == true; }

// nf_tables that is not loaded, for commands that only read.
class EmptyBackend : public netlink::Backend {
 public:
  netlink::BackendKind kind() const override { return netlink::BackendKind::kNft; }
  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery> /*queries*/,
                                         const netlink::NativeTable* /*native*/) override {
    return netlink::Snapshot();
  }
  absl::StatusOr<netlink::Survey> TakeSurvey(const netlink::SurveyFilter& /*keep*/) override {
    return netlink::Survey{.mode = "nft", .tables = {}};
  }
  absl::Status Apply(const netlink::Transaction& /*transaction*/) override {
    return absl::FailedPreconditionError("nf_tables is not loaded, and this command only reads");
  }
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode /*mode*/) override {
    return absl::UnimplementedError("nf_tables is not loaded: there is nothing to watch");
  }
};

// FailedPrecondition: there are no tables. Other errors: it is not known.
absl::Status CheckLegacyIsThere(absl::Span<const Family> families, const ModeSources& sources) {
  std::vector<absl::Status> unknown;
  if (HasIptablesLegacyTables(sources, unknown, families)) return absl::OkStatus();
  if (!unknown.empty()) return unknown.back();
  return absl::FailedPreconditionError("there are no iptables-legacy tables");
}

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
  sources.list_nft = [](Family family) { return netlink::ListNftChains(family, ShowsUse); };
  sources.open_legacy = [runner, legacy] { return NewIptablesLegacyBackend(runner, legacy); };
  sources.list_legacy = [runner, legacy = std::move(legacy)](Family family) -> ChainsOrError {
    const auto chains = ListIptablesLegacyChains(family, *runner, legacy);
    if (!chains.ok()) return chains.status();
    std::vector<netlink::ListedChain> listed;
    for (const auto& [id, chain] : *chains) {
      listed.push_back(
          {.id = id, .base = chain.hooked, .use = static_cast<uint32_t>(chain.rules.size())});
    }
    return listed;
  };
  return sources;
}

absl::Status CheckNftIsThere(const ModeSources& sources) {
  const ModuleState module = FindModule(sources.kernel, "nf_tables", "nft_do_chain");
  if (module == ModuleState::kLoadable) {
    return absl::FailedPreconditionError("nf_tables is not loaded");
  }
  if (module == ModuleState::kMissing) {
    return absl::UnavailableError("this kernel has no nf_tables");
  }
  if (module != ModuleState::kUnknown) return absl::OkStatus();
  return absl::UnknownError(
      "it is not known whether this kernel has nf_tables, and only loading it would show that; "
      "make /lib/modules readable, or give --iptables-mode");
}

absl::StatusOr<std::vector<std::string>> IptablesLegacyTableNames(Family family,
                                                                  const ModeSources& sources) {
  const std::string name(netlink::FamilyName(family));
  const std::string path = PathOfFamily(sources.table_names_path, family);
  const absl::StatusOr<std::string> text = ReadProcNetFile(path);
  if (text.ok()) return std::vector<std::string>(absl::StrSplit(*text, '\n', absl::SkipEmpty()));
  if (!absl::IsNotFound(text.status())) return text.status();
  const ModuleState module =
      FindModule(sources.kernel, name + "_tables", name == "ip" ? "ipt_do_table" : "ip6t_do_table");
  if (module == ModuleState::kPresent) {
    return absl::UnknownError(absl::StrCat(path, " is missing, although the kernel has ", name,
                                           "_tables; is /proc mounted?"));
  }
  if (module == ModuleState::kNothingToLoad || module == ModuleState::kMissing) {
    return absl::UnavailableError(absl::StrCat("this kernel has no ", name, "_tables"));
  }
  return std::vector<std::string>();
}

bool HasIptablesLegacyTables(const ModeSources& sources, std::vector<absl::Status>& unknown,
                             absl::Span<const Family> families) {
  bool any = false;
  for (const Family family : families) {
    const auto names = IptablesLegacyTableNames(family, sources);
    any |= names.ok() && !names->empty();
    if (names.ok() || absl::IsUnavailable(names.status())) continue;
    unknown.emplace_back(names.status().code(),
                         absl::StrCat(netlink::FamilyName(family), ": ", names.status().message()));
  }
  return any;
}

ModeQuestion GatherEvidence(Family family, std::optional<IptablesMode> flag,
                            const ModeSources& sources, Thoroughness thoroughness) {
  ModeQuestion question = {.family = family, .flag = flag};
  question.program_text = sources.host_root.problem;
  if (!sources.host_root.directory.empty()) {
    HostProgram program = FindHostProgram(sources.host_root.directory, family);
    question.program = program.mode;
    question.program_text = std::move(program.text);
    question.program_unreadable = program.unreadable;
  }
  const auto not_selected = [&](IptablesMode mode) {
    return thoroughness != Thoroughness::kAgain && !flag && question.program == mode;
  };
  question.nft = NftMarks(family, sources, not_selected(IptablesMode::kLegacy));
  question.legacy = LegacyMarks(family, sources, not_selected(IptablesMode::kNft));
  const bool decided = flag.has_value() || question.program == IptablesMode::kNft ||
                       question.program == IptablesMode::kLegacy || IsMarked(question.nft) ||
                       IsMarked(question.legacy);
  if (decided && thoroughness != Thoroughness::kAll) return question;
  const auto asks = [](const ModeTraces& traces) { return traces.hint && !traces.rules; };
  if (asks(question.nft)) FindRules(sources.list_nft(family), question.nft);
  if (asks(question.legacy)) FindRules(sources.list_legacy(family), question.legacy);
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

std::string ModeContradiction(absl::Span<const Family> families, std::optional<IptablesMode> flag,
                              const ModeSources& sources) {
  if (flag) return "";
  const std::vector<FamilyMode> modes =
      DetectModes(families, flag, sources, Thoroughness::kUntilDecided);
  const auto found = absl::c_find_if(modes, [](const FamilyMode& mode) {
    return mode.contradiction && mode.mode == IptablesMode::kUnknown;
  });
  return found == modes.end() ? "" : WhyUnknown(*found);
}

absl::StatusOr<IptablesMode> ChooseMode(absl::Span<const FamilyMode> modes) {
  const FamilyMode* chosen = nullptr;
  for (const FamilyMode& mode : modes) {
    if (mode.mode == IptablesMode::kUnknown) {
      return absl::FailedPreconditionError(WhyUnknown(mode));
    }
    if (mode.mode == IptablesMode::kNone) continue;
    if (chosen == nullptr) chosen = &mode;
    if (chosen->mode == mode.mode) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        netlink::FamilyName(chosen->family), " uses iptables ", IptablesModeName(chosen->mode),
        " and ", netlink::FamilyName(mode.family), " uses ", IptablesModeName(mode.mode),
        "; run once for each, with --ip-families and --iptables-mode"));
  }
  return chosen == nullptr ? IptablesMode::kNft : chosen->mode;
}

BackendOrError ChooseBackend(const BackendRequest& request, const ModeSources& sources) {
  const absl::StatusOr<IptablesMode> mode =
      request.flag ? *request.flag
                   : ChooseMode(DetectModes(request.families, std::nullopt, sources,
                                            Thoroughness::kUntilDecided));
  if (!mode.ok() && !request.off) return mode.status();
  if (mode.ok() && *mode == IptablesMode::kLegacy) return sources.open_legacy();
  if (request.read_only && absl::IsFailedPrecondition(CheckNftIsThere(sources))) {
    return std::make_unique<EmptyBackend>();
  }
  return sources.open_nft();
}

absl::Status VisitMode(netlink::BackendKind kind, absl::Span<const Family> families,
                       const ModeSources& sources,
                       absl::FunctionRef<absl::Status(netlink::Backend& backend)> work) {
  const bool nft = kind == netlink::BackendKind::kNft;
  absl::Status status = nft ? CheckNftIsThere(sources) : CheckLegacyIsThere(families, sources);
  if (absl::IsUnavailable(status) || absl::IsFailedPrecondition(status)) return absl::OkStatus();
  if (!status.ok()) return status;
  const BackendOrError backend = nft ? sources.open_nft() : sources.open_legacy();
  status = backend.ok() ? work(**backend) : backend.status();
  return nft && absl::IsUnavailable(status) ? absl::OkStatus() : status;
}

absl::StatusOr<netlink::Survey> TakeSettled(
    absl::FunctionRef<absl::StatusOr<netlink::Survey>()> take) {
  constexpr int kMostAttempts = 5;
  absl::StatusOr<netlink::Survey> survey = take();
  for (int attempt = 1; absl::IsAborted(survey.status()) && attempt < kMostAttempts; ++attempt) {
    survey = take();
  }
  return survey;
}

std::string ReadWhoDropsMartians(const ModeSources& sources,
                                 absl::Span<const netlink::BackendKind> kinds) {
  // The others hold most of a node's rules, and drop no martian packet.
  const netlink::SurveyFilter keep = [](const auto& table, const auto&, const auto&) {
    return (table.family == "ip" || table.family == "inet") && table.name != "nat" &&
           table.name != "kube-proxy";
  };
  const bool lo_is_loopback = LoopbackName() == "lo";
  std::string found;
  const auto read = [&](netlink::Backend& backend) {
    const absl::StatusOr<netlink::Survey> survey =
        TakeSettled([&] { return backend.TakeSurvey(keep); });
    if (survey.ok()) found = WhoDropsMartians(*survey, lo_is_loopback);
    return survey.status();
  };
  for (const netlink::BackendKind kind : kinds) {
    const absl::Status status = VisitMode(kind, netlink::kFamilies, sources, read);
    if (status.ok() && !found.empty()) break;
  }
  return found;
}

OtherMode ReadOtherMode(netlink::BackendKind managed, absl::Span<const Family> families,
                        const ModeSources& sources) {
  const netlink::BackendKind kind = OtherThan(managed);
  OtherMode other = {.iptables_mode = std::string(netlink::BackendKindName(kind))};
  std::vector<netlink::ChainQuery> queries;
  for (const Family family : families) {
    for (const DesiredChain& chain : EveryKubeletChain(family)) {
      queries.push_back({.chain = chain.id, .with_rules = false});
    }
  }
  const absl::Status status = VisitMode(kind, families, sources, [&](netlink::Backend& backend) {
    const absl::StatusOr<netlink::Snapshot> snapshot = backend.Read(queries);
    if (!snapshot.ok()) return snapshot.status();
    for (const netlink::ChainQuery& query : queries) {
      if (snapshot->Find(query.chain) != nullptr) other.chains.push_back(query.chain);
    }
    return absl::OkStatus();
  });
  absl::c_sort(other.chains);
  other.problem = std::string(status.message());
  return other;
}

}  // namespace kipt::agent
