// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/kube_proxy/rule_parts.h"

#include <nettle/sha2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/skew/kube_proxy/proxy_rules.h"

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

using testing::IpFamily;

constexpr char kEstablished[] = "-m conntrack --ctstate RELATED,ESTABLISHED";

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

void TableText::Rule(const std::string& chain, std::initializer_list<std::string> pieces) {
  absl::StrAppend(&rule_lines_, "-A ", chain);
  for (const std::string& piece : pieces) {
    if (!piece.empty()) absl::StrAppend(&rule_lines_, " ", piece);
  }
  rule_lines_ += '\n';
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

std::string Jump(const std::string& target) { return absl::StrCat("-j ", target); }

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

PortWords::PortWords(const ProxySettings& settings, const ServicePort& port)
    : settings_(settings), port_(port), name_(PortName(settings.version, port)) {}

std::string PortWords::Chain(const std::string& prefix) const {
  return ServiceChain(prefix, port_, settings_.version);
}

std::string PortWords::ChainOf(const Endpoint& endpoint) const {
  return EndpointChain(port_, endpoint, settings_.version);
}

std::vector<Endpoint> PortWords::Endpoints() const {
  std::vector<Endpoint> endpoints = port_.endpoints;
  if (Does(version(), Trait::kSortsEndpoints)) {
    std::sort(endpoints.begin(), endpoints.end(), [](const Endpoint& a, const Endpoint& b) {
      return AddressAndPort(a) < AddressAndPort(b);
    });
  }
  return endpoints;
}

std::vector<Endpoint> PortWords::LocalOf(const std::vector<Endpoint>& endpoints) {
  std::vector<Endpoint> local = endpoints;
  std::erase_if(local, [](const Endpoint& endpoint) { return !endpoint.local; });
  return local;
}

std::string PortWords::Named(const std::string& rest) const { return Comment(name_ + rest); }

std::string PortWords::OfProtocol() const {
  return absl::StrCat("-m ", NameOf(port_.protocol), " -p ", NameOf(port_.protocol));
}

std::string PortWords::To(const std::string& address) const {
  return absl::StrCat(OfProtocol(), " -d ", Spelled(address), " --dport ", port_.port);
}

std::string PortWords::ToNodePort() const {
  return absl::StrCat(OfProtocol(), " --dport ", port_.node_port);
}

std::string PortWords::From(const std::string& address) const { return "-s " + Spelled(address); }

std::string PortWords::FromPod() const {
  return settings_.pod_cidr.empty() ? "" : "-s " + settings_.pod_cidr;
}

std::string PortWords::NotFromPod() const {
  return settings_.pod_cidr.empty() ? "" : "! -s " + settings_.pod_cidr;
}

std::string PortWords::Spelled(const std::string& address) const {
  if (Does(version(), Trait::kBareAddresses)) return address;
  return address + (settings_.family == testing::IpFamily::kIpv4 ? "/32" : "/128");
}

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

void WriteMasquerade(const ProxySettings& settings, TableText* nat) {
  const std::string mark = Mark(settings);
  const std::string comment = Comment("kubernetes service traffic requiring SNAT");
  nat->Chain("KUBE-POSTROUTING");
  nat->Chain("KUBE-MARK-MASQ");
  if (!Does(settings.version, Trait::kProxyMarksByOr)) {
    nat->Rule("KUBE-POSTROUTING",
              {comment, "-m mark --mark", mark + "/" + mark, "-j MASQUERADE --random-fully"});
    nat->Rule("KUBE-MARK-MASQ", {"-j MARK --set-xmark", mark + "/" + mark});
    return;
  }
  nat->Rule("KUBE-POSTROUTING", {"-m mark ! --mark", mark + "/" + mark, Jump("RETURN")});
  nat->Rule("KUBE-POSTROUTING", {"-j MARK --xor-mark", mark});
  nat->Rule("KUBE-POSTROUTING", {comment, "-j MASQUERADE --random-fully"});
  nat->Rule("KUBE-MARK-MASQ", {"-j MARK --or-mark", mark});
}

void WriteForwardAccepts(const ProxySettings& settings, TableText* filter) {
  const Version version = settings.version;
  const std::string mark = Mark(settings);
  const std::string source = "kubernetes forwarding conntrack pod source rule";
  const std::string destination = "kubernetes forwarding conntrack pod destination rule";
  filter->Rule("KUBE-FORWARD", {Comment("kubernetes forwarding rules"), "-m mark --mark",
                                mark + "/" + mark, Jump("ACCEPT")});
  if (Does(version, Trait::kOneForwardRule)) {
    filter->Rule("KUBE-FORWARD",
                 {Comment("kubernetes forwarding conntrack rule"), kEstablished, Jump("ACCEPT")});
  } else if (Does(version, Trait::kNoPodCidrInForward)) {
    filter->Rule("KUBE-FORWARD", {Comment(source), kEstablished, Jump("ACCEPT")});
    filter->Rule("KUBE-FORWARD", {Comment(destination), kEstablished, Jump("ACCEPT")});
  } else if (!settings.pod_cidr.empty()) {
    filter->Rule("KUBE-FORWARD",
                 {"-s " + settings.pod_cidr, Comment(source), kEstablished, Jump("ACCEPT")});
    filter->Rule("KUBE-FORWARD",
                 {Comment(destination), "-d " + settings.pod_cidr, kEstablished, Jump("ACCEPT")});
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
  // Elsewhere the chain is ensured (JumpsOf) and left as it is.
  if (Does(version, Trait::kOwnMartianRule) && settings.family == IpFamily::kIpv4) {
    filter.Chain("KUBE-FIREWALL");
    filter.Rule(
        "KUBE-FIREWALL",
        {Comment("block incoming localnet connections"), "-d 127.0.0.0/8", "! -s 127.0.0.0/8",
         "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", Jump("DROP")});
  }
  tables->nat.Chain("KUBE-SERVICES");
  tables->nat.Chain("KUBE-NODEPORTS");
  WriteMasquerade(settings, &tables->nat);
}

void EndSync(const ProxySettings& settings, SyncTables* tables) {
  const bool spares =
      Does(settings.version, Trait::kSparesLoopback) && settings.family == IpFamily::kIpv6;
  tables->nat.Rule(
      "KUBE-SERVICES",
      {Comment("kubernetes service nodeports; NOTE: this must be the last rule in "
               "this chain"),
       "-m addrtype --dst-type LOCAL", spares ? "! -d ::1/128" : "", Jump("KUBE-NODEPORTS")});
  // 1.29 and later leave this out where nf_conntrack_tcp_be_liberal is set; by default it is not.
  tables->filter.Rule("KUBE-FORWARD", {"-m conntrack --ctstate INVALID",
                                       Counted(settings, kDroppedInvalid), Jump("DROP")});
  WriteForwardAccepts(settings, &tables->filter);
}

}  // namespace kipt::skew
