// SPDX-License-Identifier: Apache-2.0
//
// The table of kube-proxy's nftables mode without its services, and the words of its rules.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_NFTABLES_TABLE_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_NFTABLES_TABLE_H_

#include <string>

#include "tests/skew/kube_proxy/proxy_rules.h"

namespace kipt::skew {

class NftablesTable {
 public:
  explicit NftablesTable(const ProxySettings& settings);

  // "ip", "ip6"; "ipv4_addr", "ipv6_addr".
  const std::string& ip() const { return ip_; }
  const std::string& address_type() const { return address_type_; }

  // Makes base chains, chains, sets and maps, emptied, and the jumps between them.
  std::string Head() const;

  // "add rule ip kube-proxy REST\n".
  std::string Line(const std::string& verb, const std::string& rest) const;
  // The statement that marks a packet, and a comment.
  std::string MarkToMasquerade(const std::string& comment) const;
  // "ip saddr != 10.180.0.0/16".
  std::string NotFromPod() const;

 private:
  std::string BaseChains() const;
  std::string Jumps() const;
  std::string Masquerade() const;
  std::string Sets() const;
  std::string Maps() const;

  std::string Chain(const std::string& chain) const;
  std::string Rule(const std::string& chain, const std::string& rule) const;
  std::string Bit() const;

  const ProxySettings settings_;
  const std::string ip_;
  const std::string address_type_;
  // Filters before DNAT in chains of their own.
  const bool pre_dnat_;
  const bool inline_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_NFTABLES_TABLE_H_
