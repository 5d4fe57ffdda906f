// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/kube_proxy/port_words.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/skew/kube_proxy/chain_hash.h"
#include "tests/skew/kube_proxy/restore_text.h"

namespace kipt::skew {

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

}  // namespace kipt::skew
