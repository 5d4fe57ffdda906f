// SPDX-License-Identifier: Apache-2.0
//
// The parts of which the rules of a sync are made: its text, the words of a port, the chains of
// endpoints, and what each sync writes, whatever the services are.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_RULE_PARTS_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_RULE_PARTS_H_

#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/skew/kube_proxy/proxy_rules.h"

namespace kipt::skew {

// The first 16 characters of the text's SHA-256 in base 32 (RFC 4648, upper case): its first ten
// bytes.
std::string ChainHash(const std::string& text);

class TableText {
 public:
  explicit TableText(std::string table) : table_(std::move(table)) {}

  // The chain's line, which makes it or empties it. A second call for one chain adds nothing.
  void Chain(const std::string& chain);
  // "-A CHAIN RULE".
  void Rule(const std::string& chain, const std::string& rule);
  // Empties a chain and deletes it. Other chains' rules that still name it make the whole table
  // fail.
  void Delete(const std::string& chain);

  // Every chain that has a line and is not deleted.
  const std::set<std::string>& chains() const { return chains_; }
  std::string Text() const;

 private:
  std::string table_;
  std::set<std::string> chains_;
  std::string chain_lines_;
  std::string rule_lines_;
};

// The two tables that a kube-proxy restores; filter is first, and is committed first.
struct SyncTables {
  TableText filter{"filter"};
  TableText nat{"nat"};

  std::string Text() const { return filter.Text() + nat.Text(); }
};

// "-m comment --comment TEXT": in quotes where it has a space, as kube-proxy does.
std::string Comment(const std::string& text);

struct JumpRow {
  // In this version.
  bool exists;
  const char* table;
  const char* chain;
  const char* base_chain;
  // Empty: none.
  const char* comment = "";
  // Seen by new connections only.
  bool for_new = false;
};
std::vector<ProxyJump> JumpsWhere(std::initializer_list<JumpRow> rows);

// "10.0.0.1:80", "[fd00::1]:80".
std::string AddressAndPort(const Endpoint& endpoint);

// "ns/svc:name", or of an unnamed port "ns/svc": up to 1.19 "ns/svc:". (1.18.6 captured so, 1.20
// otherwise; 1.19 itself was not seen.)
std::string PortName(Version version, const ServicePort& port);

// In the order in which they are balanced: as given, from 1.20 on sorted as text (endpoint slices).
std::vector<Endpoint> EndpointsOf(Version version, const ServicePort& port);
std::vector<Endpoint> LocalOf(std::vector<Endpoint> endpoints);

// The words of a port's rules. Holds references: for the time of one sync.
class PortText {
 public:
  PortText(const ProxySettings& settings, const ServicePort& port);

  Version version() const { return settings_.version; }
  const ServicePort& port() const { return port_; }

  // `text` with the port's own words:
  //   $svc, $svl, $xlb, $ext, $fw  the service's chains
  //   $name, $protocol, $to-node-port, $pods
  //   #bare, #cluster, #external, #balancer, #none, #no-local  comments
  std::string Of(const std::string& text) const;
  // "-m tcp -p tcp -d ADDRESS --dport PORT".
  std::string To(const std::string& address) const;
  // Up to 1.22 a single address is written as a prefix.
  std::string Spelled(const std::string& address) const;

 private:
  const ProxySettings& settings_;
  const ServicePort& port_;
  std::vector<std::pair<std::string, std::string>> words_;
};

// The endpoint's own chain: its traffic to itself is masqueraded (hairpin), and all is sent to it.
void WriteEndpoint(const PortText& text, const Endpoint& endpoint, TableText* nat);

// In a chain of the service: known clients keep their endpoint (affinity), all others get a random
// one.
void WriteBalancing(const PortText& text, const std::string& chain,
                    const std::vector<Endpoint>& endpoints, TableText* nat);

// filter KUBE-NODEPORTS lets the port of the health check in: from 1.21 on.
void WriteHealthCheck(const PortText& text, TableText* filter);

// What each sync writes, whatever the services are. It empties all of these chains, other programs'
// rules included.

// nat KUBE-POSTROUTING and KUBE-MARK-MASQ, with their lines; both modes have them.
void WriteMasquerade(const ProxySettings& settings, TableText* nat);

// filter KUBE-FORWARD lets masqueraded traffic, and what belongs to known connections, through.
void WriteForwardAccepts(const ProxySettings& settings, TableText* filter);

// Before the services: the chains, the masquerade, and the martian rule where there is one.
void BeginSync(const ProxySettings& settings, SyncTables* tables);
// After them: the way from KUBE-SERVICES to the node ports, and KUBE-FORWARD.
void EndSync(const ProxySettings& settings, SyncTables* tables);

// The chains of a service, as two generations of kube-proxy lay them out (layouts.cc).

void WriteServiceTo123(const ProxySettings& settings, const ServicePort& port, SyncTables* tables);

// Service chains since 1.24. KUBE-SVC-X: all endpoints. KUBE-SVL-X: those on this node, for either
// traffic policy Local. KUBE-EXT-X: whatever comes to an address or port that is not the cluster's.
// KUBE-FW-X: a load balancer's addresses, where it has source ranges.
//
// 1.24 still marks packets for KUBE-MARK-DROP. Since 1.25 kube-proxy drops them in the filter
// table, without a chain for them.

enum class ServicePart {
  // The rules in the chains of all services, which each sync writes anew, and its own chains.
  kWhole,
  // Not its own chains.
  kCommonChains,
};

void WriteServiceFrom124(const ProxySettings& settings, const ServicePort& port, ServicePart part,
                         SyncTables* tables);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_RULE_PARTS_H_
