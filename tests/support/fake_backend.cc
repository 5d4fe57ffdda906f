// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_backend.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "netlink/base_chains.h"
#include "netlink/nft_monitor.h"

namespace kipt::testing {
namespace {

using netlink::AddRule;
using netlink::ChainId;
using netlink::CreateChain;
using netlink::DeleteChain;
using netlink::DeleteRule;
using netlink::Jump;
using netlink::Masquerade;
using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::Operation;
using netlink::RuleHandle;
using netlink::Snapshot;

constexpr size_t kMaxName = 255;
constexpr size_t kMaxComment = 255;

bool IsBaseChain(const ChainId& chain) {
  return netlink::FindBaseChain(chain.table, chain.name) != nullptr;
}

ChainId Sibling(const ChainId& chain, const std::string& name) {
  return ChainId{.family = chain.family, .table = chain.table, .name = name};
}

auto FindRule(ObservedChain& chain, RuleHandle handle) {
  return std::find_if(chain.rules.begin(), chain.rules.end(),
                      [&](const ObservedRule& rule) { return rule.handle == handle; });
}

// Applies one operation to a copy of the state.
class Applier {
 public:
  Applier(Snapshot& state, RuleHandle& next_handle) : state_(state), next_handle_(next_handle) {}

  bool changed() const { return changed_; }

  absl::Status operator()(const CreateChain& create) {
    const auto found = state_.chains.find(create.chain);
    if (found == state_.chains.end()) {
      state_.chains[create.chain].hooked = IsBaseChain(create.chain);
      changed_ = true;
      return absl::OkStatus();
    }
    if (IsBaseChain(create.chain) && !found->second.hooked) {
      return absl::FailedPreconditionError("the chain exists without its hook");
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const AddRule& add) {
    ObservedChain* chain = Find(add.chain);
    if (chain == nullptr) return absl::NotFoundError("there is no such chain");
    if (absl::Status status = CheckRule(add); !status.ok()) return status;
    auto place = chain->rules.end();
    if (add.before) {
      place = FindRule(*chain, *add.before);
      if (place == chain->rules.end()) {
        return absl::NotFoundError("there is no rule of that handle in the chain");
      }
    }
    chain->rules.insert(place, ObservedRule{.handle = next_handle_++, .content = add.rule});
    changed_ = true;
    const Jump* jump = std::get_if<Jump>(&add.rule.target);
    if (jump != nullptr && Reaches(Sibling(add.chain, jump->chain), add.chain)) {
      return absl::FailedPreconditionError("chains would jump in a circle");
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const DeleteRule& remove) {
    ObservedChain* chain = Find(remove.chain);
    if (chain == nullptr) return absl::NotFoundError("there is no such chain");
    const auto rule = FindRule(*chain, remove.handle);
    if (rule == chain->rules.end()) {
      return absl::NotFoundError("there is no rule of that handle in the chain");
    }
    chain->rules.erase(rule);
    changed_ = true;
    return absl::OkStatus();
  }

  absl::Status operator()(const DeleteChain& remove) {
    if (IsBaseChain(remove.chain)) {
      return absl::InvalidArgumentError("a base chain is not deleted");
    }
    const ObservedChain* chain = Find(remove.chain);
    if (chain == nullptr) return absl::NotFoundError("there is no such chain");
    if (!chain->rules.empty()) return absl::FailedPreconditionError("the chain is not empty");
    if (IsJumpedTo(remove.chain)) return absl::FailedPreconditionError("rules jump to the chain");
    state_.chains.erase(remove.chain);
    changed_ = true;
    return absl::OkStatus();
  }

 private:
  ObservedChain* Find(const ChainId& chain) {
    const auto found = state_.chains.find(chain);
    return found != state_.chains.end() ? &found->second : nullptr;
  }

  absl::Status CheckRule(const AddRule& add) {
    if (add.rule.comment.size() > kMaxComment) {
      return absl::InvalidArgumentError("the comment is too long");
    }
    if (std::holds_alternative<Masquerade>(add.rule.target) &&
        add.chain.table != netlink::Table::kNat) {
      return absl::InvalidArgumentError("MASQUERADE is for nat POSTROUTING only");
    }
    const Jump* jump = std::get_if<Jump>(&add.rule.target);
    if (jump == nullptr) return absl::OkStatus();
    const ObservedChain* target = Find(Sibling(add.chain, jump->chain));
    if (target == nullptr) {
      return absl::NotFoundError(absl::StrCat("there is no chain ", jump->chain, " to jump to"));
    }
    // A plain chain of a base chain's name is a chain like any other.
    if (target->hooked) return absl::FailedPreconditionError("a jump to a base chain");
    return absl::OkStatus();
  }

  bool IsJumpedTo(const ChainId& chain) const {
    for (const auto& [id, content] : state_.chains) {
      if (id.family != chain.family || id.table != chain.table) continue;
      for (const ObservedRule& rule : content.rules) {
        const std::string* target = JumpTarget(rule);
        if (target != nullptr && *target == chain.name) return true;
      }
    }
    return false;
  }

  // Whether a packet in `from` can come to `to` by jumps.
  bool Reaches(const ChainId& from, const ChainId& to) const {
    std::set<ChainId> seen;
    std::vector<ChainId> open = {from};
    while (!open.empty()) {
      const ChainId next = open.back();
      open.pop_back();
      if (next == to) return true;
      const ObservedChain* chain = state_.Find(next);
      if (chain == nullptr || !seen.insert(next).second) continue;
      for (const ObservedRule& rule : chain->rules) {
        if (const std::string* target = JumpTarget(rule)) open.push_back(Sibling(next, *target));
      }
    }
    return false;
  }

  Snapshot& state_;
  RuleHandle& next_handle_;
  bool changed_ = false;
};

// The first of them, taken out.
std::optional<absl::Status> Pop(std::deque<absl::Status>& faults) {
  if (faults.empty()) return std::nullopt;
  absl::Status fault = std::move(faults.front());
  faults.pop_front();
  return fault;
}

absl::Status Explain(const Operation& operation, const absl::Status& why) {
  return absl::Status(why.code(), absl::StrCat(ToString(ChainOf(operation)), ": ",
                                               ToString(operation), ": ", why.message()));
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
      changes_.count = 1;
    }
  }

 private:
  FakeBackend& backend_;
  netlink::WatchMode mode_;
  int fd_;
  netlink::RulesetChanges changes_;
};

absl::StatusOr<Snapshot> FakeBackend::Read(absl::Span<const netlink::ChainQuery> queries) {
  ++read_count_;
  if (const std::optional<absl::Status> fault = Pop(read_faults_)) return *fault;
  Snapshot snapshot{.generation = state_.generation, .chains = {}};
  for (const netlink::ChainQuery& query : queries) {
    const ObservedChain* chain = state_.Find(query.chain);
    if (chain == nullptr) continue;
    ObservedChain& observed = snapshot.chains[query.chain];
    observed.hooked = chain->hooked;
    if (query.with_rules) observed.rules = chain->rules;
  }
  if (!other_writers_.empty()) {
    const std::function<void(FakeBackend&)> other_writer = other_writers_.front();
    other_writers_.pop_front();
    other_writer(*this);
  }
  return snapshot;
}

absl::Status FakeBackend::Apply(const netlink::Transaction& transaction) {
  ++apply_count_;
  if (const std::optional<absl::Status> fault = Pop(apply_faults_)) return *fault;
  if (transaction.empty()) return absl::OkStatus();
  for (const Operation& operation : transaction.operations) {
    const std::string& name = ChainOf(operation).name;
    if (name.empty() || name.size() > kMaxName) {
      return Explain(operation, absl::InvalidArgumentError("a chain's name has 1 to 255 bytes"));
    }
  }
  if (transaction.generation != state_.generation) {
    return absl::AbortedError("the ruleset has changed since it was read");
  }
  Snapshot copy = state_;
  RuleHandle next_handle = next_handle_;
  Applier applier(copy, next_handle);
  for (const Operation& operation : transaction.operations) {
    if (absl::Status status = std::visit(applier, operation); !status.ok()) {
      return Explain(operation, status);
    }
  }
  if (applier.changed()) {
    ++copy.generation;
    state_ = std::move(copy);
    next_handle_ = next_handle;
  }
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
  ++state_.generation;
  if (monitor_ == nullptr) return;
  netlink::RulesetChange change = writer_;
  change.generation = state_.generation;
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

void FakeBackend::AddChain(const ChainId& chain, bool hooked) {
  state_.chains[chain].hooked = hooked && IsBaseChain(chain);
  Touch();
}

RuleHandle FakeBackend::Place(const ChainId& chain, bool first, Content content) {
  if (state_.Find(chain) == nullptr) AddChain(chain);
  std::vector<ObservedRule>& rules = state_.chains[chain].rules;
  rules.insert(first ? rules.begin() : rules.end(),
               ObservedRule{.handle = next_handle_, .content = std::move(content)});
  Touch();
  return next_handle_++;
}

RuleHandle FakeBackend::AppendRule(const ChainId& chain, Content content) {
  return Place(chain, /*first=*/false, std::move(content));
}

RuleHandle FakeBackend::InsertRule(const ChainId& chain, Content content) {
  return Place(chain, /*first=*/true, std::move(content));
}

void FakeBackend::RemoveRule(const ChainId& chain, RuleHandle handle) {
  const auto found = state_.chains.find(chain);
  if (found == state_.chains.end()) return;
  std::vector<ObservedRule>& rules = found->second.rules;
  rules.erase(std::remove_if(rules.begin(), rules.end(),
                             [&](const ObservedRule& rule) { return rule.handle == handle; }),
              rules.end());
  Touch();
}

void FakeBackend::FlushChain(const ChainId& chain) {
  const auto found = state_.chains.find(chain);
  if (found == state_.chains.end()) return;
  found->second.rules.clear();
  Touch();
}

void FakeBackend::RemoveChain(const ChainId& chain) {
  state_.chains.erase(chain);
  Touch();
}

void FakeBackend::Clear() {
  state_.chains.clear();
  Touch();
}

std::string ToString(const FakeBackend& backend) { return ToString(backend.state()); }

}  // namespace kipt::testing
