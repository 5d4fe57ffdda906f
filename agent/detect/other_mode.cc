// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/other_mode.h"

#include <algorithm>

#include "absl/status/status.h"
#include "agent/policy/policy.h"

namespace kipt::agent {
namespace {

using netlink::Family;

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
