// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/node.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/skew/actors/third_parties.h"
#include "tests/skew/matrix/test_services.h"
#include "tests/support/run_program.h"

namespace kipt::soak {

using testing::IpFamily;

namespace {

constexpr char kTracking[] = R"(
table inet soak {
  chain tracking {
    type filter hook prerouting priority 0
    ct state new
  }
}
)";

}  // namespace

Node::Node(testing::IptablesMode mode, const Options& options, Journal& the_journal)
    : journal(the_journal),
      windows(NameOf(mode), the_journal, options.limits.repair, options.limits.slack),
      name_(NameOf(mode)),
      mode_(mode),
      options_(options) {}

absl::StatusOr<std::unique_ptr<Node>> Node::Create(testing::IptablesMode mode,
                                                   const Options& options, Journal& journal) {
  std::unique_ptr<Node> node(new Node(mode, options, journal));
  absl::StatusOr<std::unique_ptr<skew::TestNode>> place = skew::TestNode::Create();
  if (!place.ok()) return place.status();
  node->place_ = *std::move(place);
  if (!node->files_.MakeDirectory("cni")) return absl::InternalError("no directory in /run");
  Random random = node->RandomOf("node");
  node->proxy = node->DrawProxy(random);
  const testing::InNetns inside(node->netns());
  LetMartiansIn();
  // The kernel follows connections, and asks the nat tables, only where some rule needs that: else
  // who takes away the last MASQUERADE takes away the drop mark, too.
  const testing::ProgramResult tracked = testing::RunProgram({"nft", "-f", "-"}, kTracking);
  if (tracked.exit_code != 0) return absl::InternalError("nft: " + tracked.err);
  return node;
}

Random Node::RandomOf(const std::string& actor) const {
  const std::string text = absl::StrCat(name_, "/", actor, "/", options_.seed);
  std::seed_seq seeds(text.begin(), text.end());
  return Random(seeds);
}

void Node::BeginSoak() {
  const std::lock_guard<std::mutex> lock(soak_mutex_);
  soak_begun_ = absl::Now();
}

absl::Duration Node::Soaked() const {
  const std::lock_guard<std::mutex> lock(soak_mutex_);
  return std::max(absl::Now() - soak_begun_, absl::ZeroDuration());
}

std::optional<skew::Version> Node::DrawProxy(Random& random) const {
  constexpr skew::Version kVersions[] = {{1, 24}, {1, 28}};
  const int drawn = Draw(random, 6);
  // Two masquerade bits would be a mistake of the administrator's, which the agent only reports.
  if (drawn >= 4 || settings.bits.masquerade != testing::KubeletBits().masquerade) return {};
  return kVersions[drawn % 2];
}

std::vector<skew::ServicePort> ServicesOf(int set, IpFamily family) {
  std::vector<skew::ServicePort> services = skew::TestServices(family);
  if (set != 0) {
    for (skew::ServicePort& service : skew::StreamServices(family)) {
      services.push_back(std::move(service));
    }
  }
  return services;
}

std::unique_ptr<skew::ServiceProxy> NewProxy(const skew::IptablesChoice& iptables,
                                             skew::Version version) {
  return skew::NewKubeProxy({.version = {version, skew::ProxyMode::kIptables},
                             .iptables = iptables,
                             .pod_cidr_v4 = skew::PodCidr(IpFamily::kIpv4),
                             .pod_cidr_v6 = skew::PodCidr(IpFamily::kIpv6)});
}

skew::Act PutUsers(const skew::IptablesChoice& iptables, const UserSet& users) {
  skew::Act act;
  if (users.masq) act = skew::AddUserOfMarkMasq(iptables, kMasqPort);
  if (!act.ok || !users.drop) return act;
  return skew::AddUserOfMarkDrop(iptables, kDropPort);
}

void TakeUsersAway(const skew::IptablesChoice& choice, const UserSet& users) {
  const auto take = [&choice](const std::string& chain, std::vector<std::string> jump) {
    for (const IpFamily family : testing::kBothFamilies) {
      const testing::Iptables iptables = choice.Of(family);
      jump.insert(jump.end(), {"-j", chain});
      iptables.Run(jump);
      jump.resize(jump.size() - 2);
      iptables.Run({"-w", "-t", "nat", "-F", chain});
      iptables.Run({"-w", "-t", "nat", "-X", chain});
    }
  };
  const std::vector<std::string> type = {"-w", "-t", "nat", "-D", "PREROUTING", "-m", "addrtype"};
  std::vector<std::string> local = type;
  local.insert(local.end(), {"--dst-type", "LOCAL"});
  std::vector<std::string> beyond = type;
  beyond.insert(beyond.end(), {"!", "--dst-type", "LOCAL"});
  if (!users.drop) take("USER-DROPS", local);
  if (!users.masq) take("USER-MASQ", beyond);
}

void LetMartiansIn() { std::ofstream("/proc/sys/net/ipv4/conf/all/route_localnet") << "1"; }

}  // namespace kipt::soak
