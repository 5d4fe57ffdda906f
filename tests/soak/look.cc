// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/look.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agent/process/owned_fd.h"
#include "agent/xtables/save_parser.h"
#include "netlink/backend.h"
#include "netlink/nft_backend.h"
#include "tests/support/generation_listener.h"

namespace kipt::soak {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::Rule;
using netlink::Table;

constexpr char kLock[] = "/run/xtables.lock";
// A look at legacy rules is four programs.
constexpr absl::Duration kBetweenLegacyLooks = absl::Milliseconds(20);
constexpr absl::Duration kLongestWait = absl::Milliseconds(500);

const ChainId kWatched[] = {
    {Family::kIPv4, Table::kFilter, "INPUT"},
    {Family::kIPv4, Table::kFilter, "KUBE-FIREWALL"},
    {Family::kIPv4, Table::kNat, "PREROUTING"},
    {Family::kIPv4, Table::kNat, "POSTROUTING"},
    {Family::kIPv4, Table::kNat, "KUBE-POSTROUTING"},
    {Family::kIPv4, Table::kNat, "KUBE-MARK-MASQ"},
    {Family::kIPv4, Table::kNat, "KUBE-MARK-DROP"},
    {Family::kIPv4, Table::kNat, "USER-MASQ"},
    {Family::kIPv4, Table::kNat, "USER-DROPS"},
};

class View {
 public:
  View(const Chains& chains, Family family) : chains_(chains), family_(family) {}

  template <typename Wanted>
  bool Has(Table table, const char* name, const Wanted& wanted) const {
    const auto found = chains_.find({family_, table, name});
    if (found == chains_.end()) return false;
    const std::vector<ObservedRule>& rules = found->second.rules;
    return std::any_of(rules.begin(), rules.end(), wanted);
  }
  bool Jumps(Table table, const char* from, const std::string& to) const {
    return Has(table, from, [&to](const ObservedRule& rule) {
      const std::string* target = JumpTarget(rule);
      return target != nullptr && *target == to;
    });
  }
  // The bit that this chain sets.
  std::optional<uint32_t> BitOf(const char* chain) const {
    std::optional<uint32_t> bit;
    Has(Table::kNat, chain, [&bit](const ObservedRule& observed) {
      const Rule* rule = observed.rule();
      const auto* set = rule == nullptr ? nullptr : std::get_if<netlink::SetMark>(&rule->target);
      if (set != nullptr) bit = set->value;
      return set != nullptr;
    });
    return bit;
  }

  bool Masquerades() const {
    const std::optional<uint32_t> bit = BitOf("KUBE-MARK-MASQ");
    return bit && Jumps(Table::kNat, "POSTROUTING", "KUBE-POSTROUTING") &&
           Has(Table::kNat, "KUBE-POSTROUTING",
               [&bit](const ObservedRule& observed) {
                 const Rule* rule = observed.rule();
                 return rule != nullptr && rule->mark && rule->mark->negated &&
                        rule->mark->mask == *bit &&
                        std::holds_alternative<netlink::Return>(rule->target);
               }) &&
           Has(Table::kNat, "KUBE-POSTROUTING", [](const ObservedRule& observed) {
             const Rule* rule = observed.rule();
             return rule != nullptr && std::holds_alternative<netlink::Masquerade>(rule->target);
           });
  }
  bool DropsMarked() const {
    const std::optional<uint32_t> bit = BitOf("KUBE-MARK-DROP");
    return bit && Jumps(Table::kFilter, "INPUT", "KUBE-FIREWALL") &&
           Has(Table::kFilter, "KUBE-FIREWALL", [&bit](const ObservedRule& observed) {
             const Rule* rule = observed.rule();
             return rule != nullptr && rule->mark && !rule->mark->negated &&
                    rule->mark->mask == *bit && std::holds_alternative<netlink::Drop>(rule->target);
           });
  }
  bool DropsMartians() const {
    return Jumps(Table::kFilter, "INPUT", "KUBE-FIREWALL") &&
           Has(Table::kFilter, "KUBE-FIREWALL", [](const ObservedRule& observed) {
             const Rule* rule = observed.rule();
             return rule != nullptr && rule->destination && rule->ct_state &&
                    std::holds_alternative<netlink::Drop>(rule->target);
           });
  }
  bool Leads(const char* user, const char* to) const {
    return Jumps(Table::kNat, "PREROUTING", user) && Jumps(Table::kNat, user, to);
  }

 private:
  const Chains& chains_;
  const Family family_;
};

class NftLooker : public Looker {
 public:
  NftLooker(std::unique_ptr<netlink::Backend> backend,
            std::unique_ptr<testing::GenerationListener> listener)
      : backend_(std::move(backend)), listener_(std::move(listener)) {
    for (const Family family : netlink::kFamilies) {
      for (ChainId chain : kWatched) {
        chain.family = family;
        queries_.push_back({std::move(chain)});
      }
    }
  }

  void Wait(absl::Duration patience) override {
    pollfd waiting = {listener_->fd(), POLLIN, 0};
    poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
    // Lost ones say as much: that something has changed.
    listener_->Drain().IgnoreError();
  }
  absl::StatusOr<Chains> Look() override {
    absl::StatusOr<netlink::Snapshot> snapshot = backend_->Read(queries_);
    if (!snapshot.ok()) return snapshot.status();
    return std::move(snapshot->chains);
  }

 private:
  const std::unique_ptr<netlink::Backend> backend_;
  const std::unique_ptr<testing::GenerationListener> listener_;
  std::vector<netlink::ChainQuery> queries_;
};

class LegacyLooker : public Looker {
 public:
  LegacyLooker(const Node& node, agent::OwnedFd events) : node_(node), events_(std::move(events)) {}

  void Wait(absl::Duration patience) override {
    absl::SleepFor(last_ + kBetweenLegacyLooks - absl::Now());
    pollfd waiting = {events_.get(), POLLIN, 0};
    poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
    std::array<char, 4096> buffer = {};
    while (read(events_.get(), buffer.data(), buffer.size()) > 0) continue;
    last_ = absl::Now();
  }
  absl::StatusOr<Chains> Look() override {
    const testing::InNetns inside(node_.netns());
    Chains all;
    for (const testing::IpFamily family : testing::kBothFamilies) {
      const Family of = family == testing::IpFamily::kIpv4 ? Family::kIPv4 : Family::kIPv6;
      for (const char* table : {"filter", "nat"}) {
        const testing::ProgramResult saved = node_.Of(family).Save(table);
        if (saved.exit_code != 0) return absl::AbortedError(saved.err);
        absl::StatusOr<Chains> chains = agent::ParseSave(of, saved.out);
        if (!chains.ok()) return chains.status();
        all.merge(*chains);
      }
    }
    return all;
  }

 private:
  const Node& node_;
  const agent::OwnedFd events_;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace

Sight SightOf(const Chains& chains) {
  const View v4(chains, Family::kIPv4);
  const View v6(chains, Family::kIPv6);
  Sight sight;
  sight.ours = {v4.Masquerades(), v6.Masquerades(), v4.DropsMarked(), v6.DropsMarked(),
                v4.DropsMartians()};
  sight.theirs = {v4.Leads("USER-MASQ", "KUBE-MARK-MASQ"), v6.Leads("USER-MASQ", "KUBE-MARK-MASQ"),
                  v4.Leads("USER-DROPS", "KUBE-MARK-DROP"),
                  v6.Leads("USER-DROPS", "KUBE-MARK-DROP"), true};
  return sight;
}

absl::StatusOr<std::unique_ptr<Looker>> Looker::Create(const Node& node) {
  const testing::InNetns inside(node.netns());
  if (!node.nft()) {
    // Whoever comes first makes it.
    const agent::OwnedFd lock(open(kLock, O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
    agent::OwnedFd events(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (!lock.valid() || !events.valid() || inotify_add_watch(events.get(), kLock, IN_CLOSE) < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("watching ", kLock));
    }
    return std::make_unique<LegacyLooker>(node, std::move(events));
  }
  absl::StatusOr<std::unique_ptr<netlink::Backend>> backend = netlink::NewNftBackend();
  if (!backend.ok()) return backend.status();
  absl::StatusOr<std::unique_ptr<testing::GenerationListener>> listener =
      testing::GenerationListener::Create();
  if (!listener.ok()) return listener.status();
  return std::make_unique<NftLooker>(*std::move(backend), *std::move(listener));
}

void Watch(Node& node, Looker& looker) {
  bool all = false;
  while (!node.ended) {
    looker.Wait(all ? kLongestWait : absl::Milliseconds(10));
    const absl::Time begun = absl::Now();
    const absl::StatusOr<Chains> chains = looker.Look();
    all = false;
    if (absl::IsAborted(chains.status())) continue;
    if (!chains.ok()) {
      node.journal.Violate(node.name(), "harness", std::string(chains.status().message()),
                           "that the rules can be read");
      continue;
    }
    const Sight sight = SightOf(*chains);
    node.windows.See(sight, {begun, absl::Now()});
    const auto whole = [](bool stands) { return stands; };
    all = std::all_of(sight.ours.begin(), sight.ours.end(), whole) &&
          std::all_of(sight.theirs.begin(), sight.theirs.end(), whole);
    node.journal.Count(node.name(), "looks");
  }
}

}  // namespace kipt::soak
