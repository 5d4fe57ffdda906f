// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/backend_choice.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/policy/policy.h"

namespace kipt::agent {
namespace {

using netlink::Family;

// nf_tables that is not loaded, for commands that only look: there is nothing in it.
class EmptyBackend : public netlink::Backend {
 public:
  netlink::BackendKind kind() const override { return netlink::BackendKind::kNft; }
  absl::StatusOr<netlink::Snapshot> Read(
      absl::Span<const netlink::ChainQuery> /*queries*/) override {
    return netlink::Snapshot();
  }
  absl::StatusOr<netlink::Survey> TakeSurvey(const netlink::SurveyFilter& /*keep*/) override {
    netlink::Survey survey;
    survey.mode = "nft";
    return survey;
  }
  absl::StatusOr<netlink::NativeReading> ReadNativeTable(
      const netlink::NativeTable& /*table*/) override {
    return netlink::NativeReading();
  }
  absl::Status Apply(const netlink::Transaction& /*transaction*/) override {
    return absl::FailedPreconditionError("nf_tables is not loaded, and this command only looks");
  }
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode /*mode*/) override {
    return absl::UnimplementedError("nf_tables is not loaded: there is nothing to watch");
  }
};

constexpr char kAdvice[] =
    "give --iptables-mode=nft or --iptables-mode=legacy; `kube-iptables-agent detect` shows what "
    "was looked at";

absl::Status CannotTell(const FamilyMode& mode) {
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot tell which iptables this node uses for ", netlink::FamilyName(mode.family), ": ",
      absl::StrJoin(mode.findings, "; "), "; ", kAdvice));
}

BackendOrError OpenNft(bool read_only, const ModeSources& sources) {
  if (read_only && absl::IsFailedPrecondition(CheckNftIsThere(sources))) {
    return std::make_unique<EmptyBackend>();
  }
  return sources.open_nft();
}

// What is asked of the other mode: existence only.
std::vector<netlink::ChainQuery> KubeletChains(absl::Span<const Family> families) {
  std::vector<netlink::ChainQuery> queries;
  for (const Family family : families) {
    for (const DesiredChain& chain : EveryKubeletChain(family)) {
      queries.push_back({.chain = chain.id, .with_rules = false});
    }
  }
  return queries;
}

}  // namespace

absl::StatusOr<IptablesMode> ChooseMode(absl::Span<const FamilyMode> modes) {
  const FamilyMode* chosen = nullptr;
  for (const FamilyMode& mode : modes) {
    if (mode.mode == IptablesMode::kUnknown) return CannotTell(mode);
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
  absl::StatusOr<IptablesMode> mode = IptablesMode::kNft;
  if (request.flag) {
    mode = *request.flag;
  } else {
    mode = ChooseMode(
        DetectModes(request.families, std::nullopt, sources, Thoroughness::kUntilDecided));
    if (!mode.ok() && request.off) mode = IptablesMode::kNft;
  }
  if (!mode.ok()) return mode.status();
  return *mode == IptablesMode::kLegacy ? sources.open_legacy()
                                        : OpenNft(request.read_only, sources);
}

absl::Status CheckModeIsThere(netlink::BackendKind kind, absl::Span<const Family> families,
                              const ModeSources& sources) {
  if (kind == netlink::BackendKind::kNft) return CheckNftIsThere(sources);
  absl::Status nothing = absl::FailedPreconditionError("there are no legacy tables");
  for (const Family family : families) {
    const absl::StatusOr<std::vector<std::string>> tables =
        IptablesLegacyTableNames(family, sources);
    if (tables.ok() && !tables->empty()) return absl::OkStatus();
    if (!tables.ok() && !absl::IsUnavailable(tables.status())) nothing = tables.status();
  }
  return nothing;
}

bool HoldsNothing(netlink::BackendKind kind, const absl::Status& error) {
  return kind == netlink::BackendKind::kNft && absl::IsUnavailable(error);
}

BackendOrError OpenMode(netlink::BackendKind kind, const ModeSources& sources) {
  return kind == netlink::BackendKind::kNft ? sources.open_nft() : sources.open_legacy();
}

OtherMode ListOtherMode(netlink::BackendKind kind, absl::Span<const Family> families,
                        const netlink::Snapshot& snapshot) {
  OtherMode other = {.iptables_mode = std::string(netlink::BackendKindName(kind))};
  for (const netlink::ChainQuery& query : KubeletChains(families)) {
    if (snapshot.Find(query.chain) != nullptr) other.chains.push_back(query.chain);
  }
  std::sort(other.chains.begin(), other.chains.end());
  return other;
}

OtherMode ReadOtherMode(netlink::BackendKind managed, absl::Span<const Family> families,
                        const ModeSources& sources) {
  const netlink::BackendKind kind = OtherThan(managed);
  OtherMode other = {.iptables_mode = std::string(netlink::BackendKindName(kind))};
  absl::Status status = CheckModeIsThere(kind, families, sources);
  if (absl::IsUnavailable(status) || absl::IsFailedPrecondition(status)) return other;
  if (status.ok()) {
    BackendOrError backend = OpenMode(kind, sources);
    status = backend.status();
    if (backend.ok()) {
      const absl::StatusOr<netlink::Snapshot> snapshot = (*backend)->Read(KubeletChains(families));
      if (snapshot.ok()) return ListOtherMode(kind, families, *snapshot);
      status = snapshot.status();
    }
  }
  if (!HoldsNothing(kind, status)) other.problem = std::string(status.message());
  return other;
}

}  // namespace kipt::agent
