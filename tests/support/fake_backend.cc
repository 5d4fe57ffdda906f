// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_backend.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <utility>

#include "netlink/nft_monitor.h"
#include "netlink/reach.h"
#include "tests/support/ruleset_text.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

// The first of them, taken out.
std::optional<absl::Status> Pop(std::deque<absl::Status>& faults) {
  if (faults.empty()) return std::nullopt;
  absl::Status fault = std::move(faults.front());
  faults.pop_front();
  return fault;
}

}  // namespace

class FakeBackend::FakeMonitor : public netlink::Monitor {
 public:
  FakeMonitor(FakeBackend& backend, netlink::WatchMode mode, int fd)
      : backend_(backend), mode_(mode), fd_(fd) {}
  ~FakeMonitor() override {
    if (backend_.monitor_ == this) backend_.monitor_ = nullptr;
    close(fd_);
  }
  FakeMonitor(const FakeMonitor&) = delete;
  FakeMonitor& operator=(const FakeMonitor&) = delete;

  int fd() const override { return fd_; }

  absl::StatusOr<netlink::RulesetChanges> Drain() override {
    if (backend_.monitor_ != this) {
      return absl::FailedPreconditionError("a newer monitor has taken the place of this one");
    }
    eventfd_t ignored = 0;
    eventfd_read(fd_, &ignored);
    if (const std::optional<absl::Status> fault = Pop(backend_.drain_faults_)) return *fault;
    return std::exchange(changes_, {});
  }

  void Wake() const { eventfd_write(fd_, 1); }
  void Add(netlink::RulesetChange change) {
    Wake();
    if (mode_ == netlink::WatchMode::kEvents) {
      netlink::Record(std::move(change), changes_);
    } else {
      changes_.count = changes_.others = 1;
    }
  }

 private:
  FakeBackend& backend_;
  netlink::WatchMode mode_;
  int fd_;
  netlink::RulesetChanges changes_;
};

absl::StatusOr<Snapshot> FakeBackend::Read(absl::Span<const netlink::ChainQuery> queries,
                                           const netlink::NativeTable* native) {
  ++read_count_;
  if (const std::optional<absl::Status> fault = Pop(read_faults_)) return *fault;
  Snapshot snapshot{.generation = ruleset_.snapshot.generation, .chains = {}};
  for (const netlink::ChainQuery& query : queries) {
    const ObservedChain* chain = ruleset_.snapshot.Find(query.chain);
    if (chain == nullptr) continue;
    ObservedChain& observed = snapshot.chains[query.chain];
    observed.hooked = chain->hooked;
    if (query.with_rules) observed.rules = chain->rules;
  }
  Follow(queries, snapshot);
  for (auto& [id, chain] : snapshot.chains) {
    for (netlink::ObservedRule& rule : chain.rules) {
      rule.xt = kind_ == netlink::BackendKind::kNft && ruleset_.has_xt && IsXt(rule);
    }
  }
  const auto held = native == nullptr ? ruleset_.native.end()
                                      : ruleset_.native.find({native->family, native->name});
  if (held != ruleset_.native.end()) {
    snapshot.native = {.altered = held->second.altered || held->second.table != *native,
                       .counters = held->second.counters};
  }
  if (!other_writers_.empty()) {
    const std::function<void(FakeBackend&)> other_writer = other_writers_.front();
    other_writers_.pop_front();
    other_writer(*this);
  }
  return snapshot;
}

void FakeBackend::Follow(absl::Span<const netlink::ChainQuery> queries, Snapshot& snapshot) const {
  std::set<ChainId> read;
  for (const netlink::ChainQuery& query : queries) {
    if (query.with_rules) read.insert(query.chain);
    const std::pair table(query.chain.family, query.chain.table);
    const auto dormant = ruleset_.snapshot.dormant.find(table);
    if (query.follow && dormant != ruleset_.snapshot.dormant.end()) {
      snapshot.dormant.insert(*dormant);
    }
  }
  for (;;) {
    const std::set<ChainId> more = netlink::ChainsOnTheWay(snapshot.chains, queries, read);
    if (more.empty()) return;
    for (const ChainId& id : more) {
      read.insert(id);
      const ObservedChain* chain = ruleset_.snapshot.Find(id);
      if (chain != nullptr) snapshot.chains[id] = *chain;
    }
  }
}

absl::StatusOr<netlink::Survey> FakeBackend::TakeSurvey(const netlink::SurveyFilter& keep) {
  if (const std::optional<absl::Status> fault = Pop(survey_faults_)) return *fault;
  netlink::Survey survey;
  survey.mode = std::string(netlink::BackendKindName(kind_));
  survey.generation = ruleset_.snapshot.generation;
  for (const auto& [id, chain] : ruleset_.snapshot.chains) {
    const netlink::TableId table{.family = std::string(netlink::FamilyName(id.family)),
                                 .name = std::string(netlink::TableName(id.table))};
    netlink::SurveyChain& surveyed = survey.tables[table][id.name];
    surveyed.base = chain.hooked && IsBaseChain(id);
    if (surveyed.base) surveyed.policy = "ACCEPT";
    for (const ObservedRule& rule : chain.rules) {
      netlink::SurveyRule read = {rule};
      if (!keep || keep(table, id.name, read)) surveyed.rules.push_back(std::move(read));
    }
  }
  return survey;
}

absl::Status FakeBackend::Apply(const netlink::Transaction& transaction) {
  ++apply_count_;
  if (const std::optional<absl::Status> fault = Pop(apply_faults_)) return *fault;
  if (transaction.empty()) return absl::OkStatus();
  if (kind_ == netlink::BackendKind::kIptablesLegacy &&
      std::any_of(transaction.operations.begin(), transaction.operations.end(),
                  netlink::IsNative)) {
    return absl::InvalidArgumentError("iptables-legacy has no native tables");
  }
  FakeRuleset copy = ruleset_;
  if (absl::Status status = ApplyTransaction(transaction, copy); !status.ok()) return status;
  ruleset_ = std::move(copy);
  applied_.push_back(transaction);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<netlink::Monitor>> FakeBackend::Watch(netlink::WatchMode mode) {
  if (const std::optional<absl::Status> fault = Pop(watch_faults_)) return *fault;
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, "eventfd");
  auto monitor = std::make_unique<FakeMonitor>(*this, mode, fd);
  monitor_ = monitor.get();
  return monitor;
}

void FakeBackend::Touch() {
  ++ruleset_.snapshot.generation;
  if (monitor_ == nullptr) return;
  netlink::RulesetChange change = writer_;
  change.generation = ruleset_.snapshot.generation;
  monitor_->Add(std::move(change));
}

void FakeBackend::ActAs(uint32_t pid, std::string command) {
  writer_.pid = pid;
  writer_.command = std::move(command);
}

void FakeBackend::FailNextDrain(absl::Status status) {
  drain_faults_.push_back(std::move(status));
  if (monitor_ != nullptr) monitor_->Wake();
}

void FakeBackend::MakeDormant(netlink::Family family, netlink::Table table) {
  ruleset_.snapshot.dormant[{family, table}] = 1;
  Touch();
}

void FakeBackend::AddChain(const ChainId& chain, bool hooked) {
  ruleset_.snapshot.chains[chain].hooked = hooked && IsBaseChain(chain);
  Touch();
}

RuleHandle FakeBackend::AppendRule(const ChainId& chain, Content content, bool first) {
  if (ruleset_.snapshot.Find(chain) == nullptr) AddChain(chain);
  std::vector<ObservedRule>& rules = ruleset_.snapshot.chains[chain].rules;
  rules.insert(first ? rules.begin() : rules.end(),
               ObservedRule{.handle = ruleset_.next_handle, .content = std::move(content)});
  Touch();
  return ruleset_.next_handle++;
}

void FakeBackend::RemoveRule(const ChainId& chain, RuleHandle handle) {
  const auto found = ruleset_.snapshot.chains.find(chain);
  if (found == ruleset_.snapshot.chains.end()) return;
  std::vector<ObservedRule>& rules = found->second.rules;
  rules.erase(std::remove_if(rules.begin(), rules.end(),
                             [&](const ObservedRule& rule) { return rule.handle == handle; }),
              rules.end());
  Touch();
}

void FakeBackend::RemoveChain(const ChainId& chain) {
  ruleset_.snapshot.chains.erase(chain);
  Touch();
}

void FakeBackend::Clear() {
  ruleset_.snapshot.chains.clear();
  ruleset_.snapshot.dormant.clear();
  ruleset_.native.clear();
  Touch();
}

void FakeBackend::PutNativeTable(HeldNativeTable table) {
  const auto id = std::make_pair(table.table.family, table.table.name);
  ruleset_.native[id] = std::move(table);
  Touch();
}

void FakeBackend::RemoveNativeTable(netlink::Family family, const std::string& name) {
  ruleset_.native.erase({family, name});
  Touch();
}

std::string ToString(const FakeBackend& backend) { return ToString(backend.state()); }

}  // namespace kipt::testing
