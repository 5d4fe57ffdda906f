// SPDX-License-Identifier: Apache-2.0
//
// The pieces of which the rules of one port are made, in the spelling of a version.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_PORT_WORDS_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_PORT_WORDS_H_

#include <string>
#include <vector>

#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/kube_proxy/services.h"

namespace kipt::skew {

// "10.0.0.1:80", "[fd00::1]:80".
std::string AddressAndPort(const Endpoint& endpoint);

// "ns/svc:name", or of an unnamed port "ns/svc": up to 1.19 "ns/svc:". (1.18.6 captured so, 1.20
// otherwise; 1.19 itself was not seen.)
std::string PortName(Version version, const ServicePort& port);

// Holds references: for the time of one sync.
class PortWords {
 public:
  PortWords(const ProxySettings& settings, const ServicePort& port);

  Version version() const { return settings_.version; }
  const ServicePort& port() const { return port_; }
  const std::string& name() const { return name_; }

  std::string Chain(const std::string& prefix) const;
  std::string ChainOf(const Endpoint& endpoint) const;
  // In the order in which they are balanced: as given, from 1.20 on sorted as text (endpoint
  // slices).
  std::vector<Endpoint> Endpoints() const;
  static std::vector<Endpoint> LocalOf(const std::vector<Endpoint>& endpoints);

  // A comment of the name and what follows it.
  std::string Named(const std::string& rest) const;
  // "-m tcp -p tcp".
  std::string OfProtocol() const;
  // "-m tcp -p tcp -d ADDRESS --dport PORT".
  std::string To(const std::string& address) const;
  std::string ToNodePort() const;
  std::string From(const std::string& address) const;
  // Empty where there is no local detector.
  std::string FromPod() const;
  std::string NotFromPod() const;

 private:
  // Up to 1.22 a single address is written as a prefix.
  std::string Spelled(const std::string& address) const;

  const ProxySettings& settings_;
  const ServicePort& port_;
  std::string name_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_PORT_WORDS_H_
