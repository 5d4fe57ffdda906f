// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/versions/versions.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace kipt::skew {
namespace {

constexpr Version kHint = {1, 24};
// The gate's life: alpha in 1.25, on by default in 1.27, locked in 1.28.
constexpr Version kGateAlpha = {1, 25};
constexpr Version kGateDefault = {1, 27};
constexpr Version kGateLocked = {1, 28};

// Up to the named version, the name of the generation. Proxies of iptables mode.
struct Generation {
  Version first;
  Version last;
};
constexpr Generation kKubelets[] = {
    {{1, 17}, {1, 18}}, {{1, 19}, {1, 19}}, {{1, 20}, {1, 23}}, {{1, 24}, {1, 24}}};
constexpr Generation kIptablesProxies[] = {
    {{1, 17}, {1, 17}},  // MARK --set-xmark, one masquerade rule
    {{1, 18}, {1, 18}},  // KUBE-FORWARD without addresses
    {{1, 19}, {1, 19}},  // the triple in KUBE-POSTROUTING
    {{1, 20}, {1, 20}},  // makes KUBE-MARK-DROP; FORWARD -> KUBE-EXTERNAL-SERVICES
    {{1, 21}, {1, 21}},  // filter KUBE-NODEPORTS
    {{1, 22}, {1, 22}},  // masquerade rules move into KUBE-SVC-*
    {{1, 23}, {1, 23}},  // one rule in KUBE-FORWARD instead of two
    {{1, 24}, {1, 24}},  // KUBE-EXT-* and KUBE-SVL-* instead of KUBE-XLB-*
    {{1, 25}, {1, 25}},  // KUBE-PROXY-FIREWALL instead of KUBE-MARK-DROP
    {{1, 26}, {1, 26}},  // IPv6: `! -d ::1/128` at the node ports
    {{1, 27}, kNewest},  // the martian rule; partial syncs
};
constexpr Generation kIpvsProxies[] = {{{1, 17}, {1, 20}},
                                       {{1, 21}, {1, 24}},
                                       {{1, 25}, {1, 25}},
                                       {{1, 26}, {1, 28}},
                                       {{1, 29}, kNewest}};

template <size_t kCount>
Version FirstOf(const Generation (&generations)[kCount], Version version) {
  for (const Generation& generation : generations) {
    if (generation.first <= version && version <= generation.last) return generation.first;
  }
  return version;
}

SkewVerdict Minors(int between, int allowed, const char* page) {
  return {between <= allowed,
          absl::StrCat("the skew policy ", page, " lets kubelet and kube-proxy be ",
                       allowed == 0 ? "of the same minor version only"
                                    : absl::StrCat("up to ", allowed, " minor versions apart"))};
}

}  // namespace

std::vector<Version> AllVersions() {
  std::vector<Version> versions;
  for (int minor = kOldest.minor; minor <= kNewest.minor; ++minor) versions.push_back({1, minor});
  return versions;
}

bool CleansUp(const KubeletVersion& kubelet) {
  if (kubelet.version < kGateAlpha) return false;
  if (kubelet.version >= kGateLocked) return true;
  return kubelet.ownership_cleanup.value_or(kubelet.version >= kGateDefault);
}

testing::KubeletForm FormOf(const KubeletVersion& kubelet) {
  using testing::KubeletForm;
  if (kubelet.version < Version{1, 19}) return KubeletForm::k1_17;
  if (kubelet.version < kHint) return KubeletForm::k1_19;
  if (kubelet.version == kHint) return KubeletForm::k1_24;
  return CleansUp(kubelet) ? KubeletForm::k1_27GateOn : KubeletForm::k1_27GateOff;
}

std::string ToString(const KubeletVersion& kubelet) {
  std::string text = featuregates::ToString(kubelet.version);
  if (!kubelet.ownership_cleanup.has_value()) return text;
  const bool by_default = CleansUp({kubelet.version, std::nullopt});
  if (*kubelet.ownership_cleanup == by_default) return text;
  return absl::StrCat(text, *kubelet.ownership_cleanup ? " gate on" : " gate off");
}

const char* NameOf(ProxyMode mode) {
  switch (mode) {
    case ProxyMode::kIptables:
      return "iptables";
    case ProxyMode::kIpvs:
      return "ipvs";
    case ProxyMode::kNftables:
      return "nftables";
  }
  return "";
}

std::string ToString(const ProxyVersion& proxy) {
  const std::string text = featuregates::ToString(proxy.version);
  return proxy.mode == ProxyMode::kIptables ? text : absl::StrCat(text, " ", NameOf(proxy.mode));
}

KubeletVersion GenerationOf(const KubeletVersion& kubelet) {
  if (kubelet.version < kGateAlpha) return {FirstOf(kKubelets, kubelet.version), {}};
  return {CleansUp(kubelet) ? kGateDefault : kGateAlpha, {}};
}

ProxyVersion GenerationOf(const ProxyVersion& proxy) {
  switch (proxy.mode) {
    case ProxyMode::kIptables:
      return {FirstOf(kIptablesProxies, proxy.version), proxy.mode};
    case ProxyMode::kIpvs:
      return {FirstOf(kIpvsProxies, proxy.version), proxy.mode};
    case ProxyMode::kNftables:
      break;
  }
  return {{1, 29}, proxy.mode};
}

SkewVerdict IsAllowed(Version kubelet, Version proxy) {
  const Version newer = std::max(kubelet, proxy);
  const int between = std::abs(kubelet.minor - proxy.minor);
  if (newer < Version{1, 19}) {
    SkewVerdict verdict = Minors(between, 0, "");
    verdict.because =
        "up to 1.18 no policy was written down for the two: the same minor version is taken to be "
        "allowed";
    return verdict;
  }
  if (newer < Version{1, 27}) return Minors(between, 0, "of 1.19 to 1.26");
  if (newer < Version{1, 28}) return Minors(between, 2, "of 1.27");
  // Either may be three minors older than the API server from 1.25 on, before that two; the newer
  // of them is no newer than the API server.
  const Version older = std::min(kubelet, proxy);
  if (older < Version{1, 25}) {
    return Minors(between, 2, "since 1.28, where one of them is older than 1.25,");
  }
  return Minors(between, 3, "since 1.28");
}

}  // namespace kipt::skew
