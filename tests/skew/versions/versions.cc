// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/versions/versions.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace kipt::skew {
std::vector<Version> AllVersions() {
  std::vector<Version> versions;
  for (int minor = kOldest.minor; minor <= kNewest.minor; ++minor) versions.push_back({1, minor});
  return versions;
}

bool CleansUp(const KubeletVersion& kubelet) {
  const bool by_default = Does(kubelet.version, Trait::kGateOnByDefault);
  if (!Does(kubelet.version, Trait::kGateSettable)) return by_default;
  return kubelet.ownership_cleanup.value_or(by_default);
}

testing::KubeletForm FormOf(const KubeletVersion& kubelet) {
  using testing::KubeletForm;
  if (!Does(kubelet.version, Trait::kMarksByOr)) return KubeletForm::k1_17;
  if (!Does(kubelet.version, Trait::kHint)) return KubeletForm::k1_19;
  if (!Does(kubelet.version, Trait::kJumpsInIpv4Only)) return KubeletForm::k1_24;
  return CleansUp(kubelet) ? KubeletForm::k1_27GateOn : KubeletForm::k1_27GateOff;
}

std::string ToString(const KubeletVersion& kubelet) {
  std::string text = featuregates::ToString(kubelet.version);
  if (!kubelet.ownership_cleanup.has_value()) return text;
  const bool by_default = CleansUp({kubelet.version, std::nullopt});
  if (*kubelet.ownership_cleanup == by_default) return text;
  return absl::StrCat(text, *kubelet.ownership_cleanup ? " gate on" : " gate off");
}

std::string ToString(const ProxyVersion& proxy) {
  // In the order of the enumeration.
  constexpr const char* kModes[] = {"", " ipvs", " nftables"};
  return absl::StrCat(featuregates::ToString(proxy.version),
                      kModes[static_cast<size_t>(proxy.mode)]);
}

// With its gate turned the other way a kubelet does as those do that have it that way by default.
KubeletVersion GenerationOf(const KubeletVersion& kubelet) {
  const Version by_default = {1, RowOf(Trait::kGateOnByDefault).first};
  const Version alike = CleansUp(kubelet)
                            ? std::max(kubelet.version, by_default)
                            : std::min(kubelet.version, Version{1, by_default.minor - 1});
  return {FirstLike(Component::kKubelet, alike), {}};
}

ProxyVersion GenerationOf(const ProxyVersion& proxy) {
  // In the order of the enumeration.
  constexpr Component kModes[] = {Component::kIptablesProxy, Component::kIpvsProxy,
                                  Component::kNftablesProxy};
  // Older ones do not have nftables mode.
  const Version first = {1, RowOf(Trait::kNftablesMode).first};
  const bool older = proxy.mode == ProxyMode::kNftables && proxy.version < first;
  return {FirstLike(kModes[static_cast<size_t>(proxy.mode)], older ? first : proxy.version),
          proxy.mode};
}

bool IsAllowed(Version kubelet, Version proxy) {
  const int between = std::abs(kubelet.minor - proxy.minor);
  // Up to 1.18 no policy was written down for the two.
  if (std::max(kubelet, proxy) < Version{1, 27}) return between == 0;
  if (std::max(kubelet, proxy) < Version{1, 28}) return between <= 2;
  // The API server is at least as new as both, and neither may be further from it.
  return between <= (std::min(kubelet, proxy) < Version{1, 25} ? 2 : 3);
}

}  // namespace kipt::skew
