// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/kube_proxy/rule_parts.h"

#include <nettle/sha2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tests/skew/kube_proxy/proxy_rules.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

std::string Mark(const ProxySettings& settings) {
  return absl::StrFormat("0x%08x", uint32_t{1} << settings.masquerade_bit);
}

}  // namespace

const char* NameOf(Protocol protocol) { return protocol == Protocol::kTcp ? "tcp" : "udp"; }

std::string ChainHash(const std::string& text) {
  const std::vector<uint8_t> input(text.begin(), text.end());
  std::array<uint8_t, SHA256_DIGEST_SIZE> digest = {};
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, input.size(), input.data());
  sha256_digest(&context, digest.size(), digest.data());

  constexpr size_t kCharacters = 16;
  constexpr char kBase32[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  std::string hash;
  uint32_t bits = 0;
  int held = 0;
  for (size_t i = 0; hash.size() < kCharacters; ++i) {
    bits = (bits << 8) | digest[i];
    for (held += 8; held >= 5; held -= 5) hash += kBase32[(bits >> (held - 5)) & 31U];
  }
  return hash;
}

void TableText::Chain(const std::string& chain) {
  if (chains_.insert(chain).second) absl::StrAppend(&chain_lines_, ":", chain, " - [0:0]\n");
}

void TableText::Rule(const std::string& chain, const std::string& rule) {
  absl::StrAppend(&rule_lines_, "-A ", chain, " ", rule, "\n");
}

void TableText::Delete(const std::string& chain) {
  Chain(chain);
  chains_.erase(chain);
  absl::StrAppend(&rule_lines_, "-X ", chain, "\n");
}

std::string TableText::Text() const {
  return absl::StrCat("*", table_, "\n", chain_lines_, rule_lines_, "COMMIT\n");
}

std::string Comment(const std::string& text) {
  const char* quote = text.find(' ') == std::string::npos ? "" : "\"";
  return absl::StrCat("-m comment --comment ", quote, text, quote);
}

std::vector<ProxyJump> JumpsWhere(std::initializer_list<JumpRow> rows) {
  std::vector<ProxyJump> jumps;
  for (const JumpRow& row : rows) {
    if (!row.exists) continue;
    std::vector<std::string> match;
    if (row.for_new) match = {"-m", "conntrack", "--ctstate", "NEW"};
    if (*row.comment != '\0')
      match.insert(match.end(), {"-m", "comment", "--comment", row.comment});
    jumps.push_back({row.table, row.chain, row.base_chain, std::move(match)});
  }
  return jumps;
}

std::string AddressAndPort(const Endpoint& endpoint) {
  const bool six = endpoint.address.find(':') != std::string::npos;
  return six ? absl::StrCat("[", endpoint.address, "]:", endpoint.port)
             : absl::StrCat(endpoint.address, ":", endpoint.port);
}

std::string PortName(Version version, const ServicePort& port) {
  if (port.port_name.empty() && Does(version, Trait::kNamesUnnamedPorts)) return port.service;
  return absl::StrCat(port.service, ":", port.port_name);
}

std::string ServiceChain(const std::string& prefix, const ServicePort& port, Version version) {
  return prefix + ChainHash(PortName(version, port) + NameOf(port.protocol));
}

std::string EndpointChain(const ServicePort& port, const Endpoint& endpoint, Version version) {
  return "KUBE-SEP-" + ChainHash(absl::StrCat(PortName(version, port), NameOf(port.protocol),
                                              AddressAndPort(endpoint)));
}

std::vector<Endpoint> EndpointsOf(Version version, const ServicePort& port) {
  std::vector<Endpoint> endpoints = port.endpoints;
  if (Does(version, Trait::kSortsEndpoints)) {
    std::sort(endpoints.begin(), endpoints.end(), [](const Endpoint& a, const Endpoint& b) {
      return AddressAndPort(a) < AddressAndPort(b);
    });
  }
  return endpoints;
}

std::vector<Endpoint> LocalOf(std::vector<Endpoint> endpoints) {
  std::erase_if(endpoints, [](const Endpoint& endpoint) { return !endpoint.local; });
  return endpoints;
}

PortText::PortText(const ProxySettings& settings, const ServicePort& port)
    : settings_(settings), port_(port) {
  const std::string name = PortName(settings.version, port);
  const std::string protocol =
      absl::StrCat("-m ", NameOf(port.protocol), " -p ", NameOf(port.protocol));
  words_ = {{"$name", name},
            {"$protocol", protocol},
            {"$to-node-port", absl::StrCat(protocol, " --dport ", port.node_port)},
            {"$pods", settings.pod_cidr},
            {"#bare", Comment(name)},
            {"#cluster", Comment(name + " cluster IP")},
            {"#external", Comment(name + " external IP")},
            {"#balancer", Comment(name + " loadbalancer IP")},
            {"#none", Comment(name + " has no endpoints")},
            {"#no-local", Comment(name + " has no local endpoints")}};
  for (const char* kind : {"SVC", "SVL", "XLB", "EXT", "FW"}) {
    words_.emplace_back(absl::StrCat("$", absl::AsciiStrToLower(kind)),
                        ServiceChain(absl::StrCat("KUBE-", kind, "-"), port, settings.version));
  }
}

std::string PortText::Of(const std::string& text) const {
  return absl::StrReplaceAll(text, words_);
}

std::string PortText::To(const std::string& address) const {
  return Of(absl::StrCat("$protocol -d ", Spelled(address), " --dport ", port_.port));
}

std::string PortText::Spelled(const std::string& address) const {
  if (Does(version(), Trait::kBareAddresses)) return address;
  return address + (settings_.family == IpFamily::kIpv4 ? "/32" : "/128");
}

void WriteEndpoint(const PortText& text, const Endpoint& endpoint, TableText* nat) {
  const std::string chain = EndpointChain(text.port(), endpoint, text.version());
  const char* comment = Does(text.version(), Trait::kEndpointComments) ? "#bare " : "";
  const bool affinity = text.port().affinity_seconds != 0;
  nat->Chain(chain);
  nat->Rule(chain, text.Of(absl::StrCat(comment, "-s ", text.Spelled(endpoint.address),
                                        " -j KUBE-MARK-MASQ")));
  nat->Rule(chain, text.Of(absl::StrCat(
                       comment, affinity ? absl::StrCat("-m recent --name ", chain, " --set ") : "",
                       "$protocol -j DNAT --to-destination ", AddressAndPort(endpoint))));
}

// Where a rule sends its packets to: 1.17 omits it, 1.24 and later name the endpoint too. The
// chains of local endpoints had words of their own up to 1.22. A thousand endpoints and more, of
// all services, would have no comments on these rules.
void WriteBalancing(const PortText& text, const std::string& word,
                    const std::vector<Endpoint>& endpoints, TableText* nat) {
  const Version version = text.version();
  const std::string chain = text.Of(word);
  const bool bare = Does(version, Trait::kEndpointComments);
  const bool of_local = word == "$xlb";
  const auto rule = [&](const std::string& comment, const std::string& match,
                        const Endpoint& endpoint) {
    const std::string named = Comment("$name -> " + AddressAndPort(endpoint)) + " ";
    nat->Rule(chain, text.Of(absl::StrCat(Does(version, Trait::kExtChains) ? named : comment, match,
                                          "-j ", EndpointChain(text.port(), endpoint, version))));
  };
  const int seconds = text.port().affinity_seconds;
  for (const Endpoint& endpoint : endpoints) {
    if (seconds == 0) break;
    rule(bare || of_local ? "#bare " : "",
         absl::StrCat("-m recent --name ", EndpointChain(text.port(), endpoint, version),
                      " --rcheck --seconds ", seconds, " --reap "),
         endpoint);
  }
  for (size_t i = 0; i < endpoints.size(); ++i) {
    const std::string numbered = Comment(absl::StrCat("Balancing rule ", i, " for $name")) + " ";
    // The Nth of those that are left, the last one being certain.
    const size_t left = endpoints.size() - i;
    rule(of_local && Does(version, Trait::kBalancingComments) ? numbered
         : bare                                               ? "#bare "
                                                              : "",
         left == 1 ? ""
                   : absl::StrFormat("-m statistic --mode random --probability %0.10f ",
                                     1.0 / static_cast<double>(left)),
         endpoints[i]);
  }
}

void WriteHealthCheck(const PortText& text, TableText* filter) {
  const int port = text.port().health_check_node_port;
  if (port == 0 || !Does(text.version(), Trait::kHealthCheckChain)) return;
  filter->Rule("KUBE-NODEPORTS",
               text.Of(absl::StrCat(Comment("$name health check node port"),
                                    " -m tcp -p tcp --dport ", port, " -j ACCEPT")));
}

void WriteMasquerade(const ProxySettings& settings, TableText* nat) {
  const std::string mark = Mark(settings);
  const std::string masked = absl::StrCat(mark, "/", mark);
  const std::string comment = Comment("kubernetes service traffic requiring SNAT");
  nat->Chain("KUBE-POSTROUTING");
  nat->Chain("KUBE-MARK-MASQ");
  if (!Does(settings.version, Trait::kProxyMarksByOr)) {
    nat->Rule("KUBE-POSTROUTING",
              absl::StrCat(comment, " -m mark --mark ", masked, " -j MASQUERADE --random-fully"));
    nat->Rule("KUBE-MARK-MASQ", "-j MARK --set-xmark " + masked);
    return;
  }
  nat->Rule("KUBE-POSTROUTING", absl::StrCat("-m mark ! --mark ", masked, " -j RETURN"));
  nat->Rule("KUBE-POSTROUTING", "-j MARK --xor-mark " + mark);
  nat->Rule("KUBE-POSTROUTING", comment + " -j MASQUERADE --random-fully");
  nat->Rule("KUBE-MARK-MASQ", "-j MARK --or-mark " + mark);
}

void WriteForwardAccepts(const ProxySettings& settings, TableText* filter) {
  const Version version = settings.version;
  const std::string mark = Mark(settings);
  const auto accept = [filter](const std::string& match) {
    filter->Rule("KUBE-FORWARD", match + " -j ACCEPT");
  };
  const std::string established = " -m conntrack --ctstate RELATED,ESTABLISHED";
  const std::string source = Comment("kubernetes forwarding conntrack pod source rule");
  const std::string destination = Comment("kubernetes forwarding conntrack pod destination rule");
  accept(absl::StrCat(Comment("kubernetes forwarding rules"), " -m mark --mark ", mark, "/", mark));
  if (Does(version, Trait::kOneForwardRule)) {
    accept(Comment("kubernetes forwarding conntrack rule") + established);
  } else if (Does(version, Trait::kNoPodCidrInForward)) {
    accept(source + established);
    accept(destination + established);
  } else if (!settings.pod_cidr.empty()) {
    accept(absl::StrCat("-s ", settings.pod_cidr, " ", source, established));
    accept(absl::StrCat(destination, " -d ", settings.pod_cidr, established));
  }
}

void BeginSync(const ProxySettings& settings, SyncTables* tables) {
  const Version version = settings.version;
  TableText& filter = tables->filter;
  for (const char* chain : {"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FORWARD"}) {
    filter.Chain(chain);
  }
  if (Does(version, Trait::kHealthCheckChain)) filter.Chain("KUBE-NODEPORTS");
  if (Does(version, Trait::kProxyFirewall)) filter.Chain("KUBE-PROXY-FIREWALL");
  // Elsewhere the chain is ensured (JumpsOf) and left unchanged.
  if (Does(version, Trait::kOwnMartianRule) && settings.family == IpFamily::kIpv4) {
    filter.Chain("KUBE-FIREWALL");
    filter.Rule("KUBE-FIREWALL", Comment("block incoming localnet connections") +
                                     " -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate "
                                     "RELATED,ESTABLISHED,DNAT -j DROP");
  }
  tables->nat.Chain("KUBE-SERVICES");
  tables->nat.Chain("KUBE-NODEPORTS");
  WriteMasquerade(settings, &tables->nat);
}

void EndSync(const ProxySettings& settings, SyncTables* tables) {
  const bool spares =
      Does(settings.version, Trait::kSparesLoopback) && settings.family == IpFamily::kIpv6;
  tables->nat.Rule("KUBE-SERVICES",
                   absl::StrCat(Comment("kubernetes service nodeports; NOTE: this must be the last "
                                        "rule in this chain"),
                                " -m addrtype --dst-type LOCAL ", spares ? "! -d ::1/128 " : "",
                                "-j KUBE-NODEPORTS"));
  // 1.29 and later leave this out where nf_conntrack_tcp_be_liberal is set; by default it is not.
  const std::string counted = Counted(settings, kDroppedInvalid);
  tables->filter.Rule("KUBE-FORWARD", absl::StrCat("-m conntrack --ctstate INVALID ", counted,
                                                   counted.empty() ? "" : " ", "-j DROP"));
  WriteForwardAccepts(settings, &tables->filter);
}

}  // namespace kipt::skew
