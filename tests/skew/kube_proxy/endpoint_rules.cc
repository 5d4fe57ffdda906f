// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/kube_proxy/endpoint_rules.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace kipt::skew {
namespace {

// A thousand endpoints and more, of all services, would have no comments on these rules.

// Where a rule sends its packets to: 1.17 says nothing, 1.24 and later name the endpoint too. The
// chains of local endpoints had words of their own up to 1.22.
std::string ChoiceComment(const PortWords& words, const std::string& chain, size_t index,
                          const Endpoint& endpoint) {
  const Version version = words.version();
  if (Does(version, Trait::kExtChains)) return words.Named(" -> " + AddressAndPort(endpoint));
  if (Does(version, Trait::kBalancingComments) && absl::StartsWith(chain, "KUBE-XLB-")) {
    return Comment(absl::StrCat("Balancing rule ", index, " for ", words.name()));
  }
  return !Does(version, Trait::kEndpointComments) ? "" : words.Named("");
}

std::string AffinityComment(const PortWords& words, const std::string& chain,
                            const Endpoint& endpoint) {
  const Version version = words.version();
  if (Does(version, Trait::kExtChains)) return words.Named(" -> " + AddressAndPort(endpoint));
  const bool bare =
      !Does(version, Trait::kEndpointComments) && !absl::StartsWith(chain, "KUBE-XLB-");
  return bare ? "" : words.Named("");
}

// The Nth of those that are left, the last one being certain.
std::string Chance(size_t left) {
  if (left == 1) return "";
  return absl::StrFormat("-m statistic --mode random --probability %0.10f",
                         1.0 / static_cast<double>(left));
}

}  // namespace

void WriteEndpoint(const PortWords& words, const Endpoint& endpoint, TableText* nat) {
  const std::string chain = words.ChainOf(endpoint);
  const std::string comment =
      !Does(words.version(), Trait::kEndpointComments) ? "" : words.Named("");
  const bool affinity = words.port().affinity_seconds != 0;
  nat->Chain(chain);
  nat->Rule(chain, {comment, words.From(endpoint.address), Jump("KUBE-MARK-MASQ")});
  nat->Rule(chain,
            {comment, affinity ? absl::StrCat("-m recent --name ", chain, " --set") : "",
             words.OfProtocol(), Jump("DNAT"), "--to-destination " + AddressAndPort(endpoint)});
}

void WriteBalancing(const PortWords& words, const std::string& chain,
                    const std::vector<Endpoint>& endpoints, TableText* nat) {
  const int seconds = words.port().affinity_seconds;
  for (const Endpoint& endpoint : endpoints) {
    if (seconds == 0) break;
    const std::string target = words.ChainOf(endpoint);
    nat->Rule(chain, {AffinityComment(words, chain, endpoint),
                      absl::StrCat("-m recent --name ", target, " --rcheck --seconds ", seconds,
                                   " --reap"),
                      Jump(target)});
  }
  for (size_t i = 0; i < endpoints.size(); ++i) {
    nat->Rule(chain, {ChoiceComment(words, chain, i, endpoints[i]), Chance(endpoints.size() - i),
                      Jump(words.ChainOf(endpoints[i]))});
  }
}

void WriteHealthCheck(const PortWords& words, TableText* filter) {
  const int port = words.port().health_check_node_port;
  if (port == 0 || !Does(words.version(), Trait::kHealthCheckChain)) return;
  filter->Rule("KUBE-NODEPORTS", {words.Named(" health check node port"),
                                  absl::StrCat("-m tcp -p tcp --dport ", port), Jump("ACCEPT")});
}

}  // namespace kipt::skew
