// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/restore_plan.h"

#include <array>
#include <iterator>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace kipt::agent {
namespace {

using netlink::AddRule;
using netlink::ChainId;
using netlink::CreateChain;
using netlink::DeleteChain;
using netlink::DeleteRule;
using netlink::Family;
using netlink::Jump;
using netlink::Masquerade;
using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::Operation;
using netlink::RuleHandle;
using netlink::Table;

// XT_EXTENSION_MAXNAMELEN (linux/netfilter/x_tables.h) without the NUL.
constexpr size_t kLongestChainName = 28;
constexpr size_t kLongestComment = 255;
// iptables takes these for targets where a chain's name may be.
constexpr absl::string_view kVerdicts[] = {"ACCEPT", "DROP", "QUEUE", "RETURN"};

bool HasControlCharacter(absl::string_view text) {
  return absl::c_any_of(text,
                        [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

absl::Status CheckName(absl::string_view name) {
  if (name.empty()) return absl::InvalidArgumentError("the chain's name is empty");
  if (name.size() > kLongestChainName) {
    return absl::InvalidArgumentError(
        absl::StrCat("the chain's name is longer than ", kLongestChainName, " bytes"));
  }
  if (name[0] == '-' || name[0] == '!' || absl::c_linear_search(kVerdicts, name) ||
      HasControlCharacter(name) || name.find_first_of(" \"'\\") != absl::string_view::npos) {
    return absl::InvalidArgumentError("iptables-restore takes no chain of such a name");
  }
  return absl::OkStatus();
}

// Applies one operation after the other to `state`, and keeps those that are to be sent.
class Player {
 public:
  Player(ObservedChains state, bool random_fully)
      : state_(std::move(state)), random_fully_(random_fully) {}

  std::vector<Operation> TakeOperations() { return std::move(operations_); }

  absl::Status operator()(const CreateChain& create) {
    if (absl::Status status = CheckName(create.chain.name); !status.ok()) return status;
    if (state_.count(create.chain) != 0) return absl::OkStatus();
    if (deleted_.count(create.chain) != 0) {
      return absl::InvalidArgumentError("a chain is not deleted and made again at once");
    }
    state_[create.chain].hooked = IsBaseChain(create.chain);
    operations_.emplace_back(create);
    return absl::OkStatus();
  }

  absl::Status operator()(AddRule add) {
    ObservedChain* chain = Find(add.chain);
    if (chain == nullptr) return absl::NotFoundError("there is no such chain");
    if (absl::Status status = CheckRule(add); !status.ok()) return status;
    auto place = chain->rules.end();
    if (add.before) {
      place = FindRule(*chain, *add.before);
      if (place == chain->rules.end()) return NoSuchRule();
    }
    add.number = add.before ? static_cast<int>(place - chain->rules.begin()) + 1 : 0;
    // New rules get no handle that was ever observed.
    chain->rules.insert(place, ObservedRule{.handle = 0, .content = add.rule});
    operations_.emplace_back(std::move(add));
    return absl::OkStatus();
  }

  absl::Status operator()(DeleteRule remove) {
    ObservedChain* chain = Find(remove.chain);
    if (chain == nullptr) return absl::NotFoundError("there is no such chain");
    const auto rule = FindRule(*chain, remove.handle);
    if (rule == chain->rules.end()) return NoSuchRule();
    if (rule->rule() == nullptr || *rule->rule() != remove.rule) {
      return absl::InvalidArgumentError(
          absl::StrCat("another rule is there: ", ToString(remove.chain.family, *rule)));
    }
    remove.number = static_cast<int>(rule - chain->rules.begin()) + 1;
    chain->rules.erase(rule);
    operations_.emplace_back(std::move(remove));
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
    state_.erase(remove.chain);
    deleted_.insert(remove.chain);
    operations_.emplace_back(remove);
    return absl::OkStatus();
  }

  absl::Status operator()(const netlink::WakeTable& /*wake*/) {
    return absl::InvalidArgumentError("no table of iptables-legacy is dormant");
  }
  absl::Status operator()(const auto& /*native*/) {
    return absl::InvalidArgumentError("iptables-legacy has no native tables");
  }

 private:
  static absl::Status NoSuchRule() {
    return absl::NotFoundError("there is no rule of that handle in the chain");
  }

  ObservedChain* Find(const ChainId& chain) {
    const auto found = state_.find(chain);
    return found != state_.end() ? &found->second : nullptr;
  }

  static std::vector<ObservedRule>::iterator FindRule(ObservedChain& chain, RuleHandle handle) {
    return absl::c_find_if(chain.rules, [&](const ObservedRule& rule) {
      return handle != 0 && rule.handle == handle;
    });
  }

  absl::Status CheckRule(const AddRule& add) {
    if (add.rule.comment.size() > kLongestComment) {
      return absl::InvalidArgumentError("the comment is too long");
    }
    if (HasControlCharacter(add.rule.comment)) {
      return absl::InvalidArgumentError("the comment has a control character");
    }
    if (absl::Status status = netlink::CheckConnLabel(add.rule); !status.ok()) return status;
    if (const auto* masquerade = std::get_if<Masquerade>(&add.rule.target)) {
      if (add.chain.table != Table::kNat) {
        return absl::InvalidArgumentError("MASQUERADE is for nat POSTROUTING only");
      }
      if (masquerade->random_fully && !random_fully_) {
        return absl::FailedPreconditionError(
            "--random-fully needs iptables 1.6.2 or later: install a newer iptables");
      }
    }
    const Jump* jump = std::get_if<Jump>(&add.rule.target);
    return jump != nullptr ? CheckJump(add.chain, *jump) : absl::OkStatus();
  }

  absl::Status CheckJump(const ChainId& from, const Jump& jump) {
    const ChainId to{.family = from.family, .table = from.table, .name = jump.chain};
    if (Find(to) == nullptr) {
      return absl::NotFoundError(absl::StrCat("there is no chain ", jump.chain, " to jump to"));
    }
    if (IsBaseChain(to)) return absl::FailedPreconditionError("a jump to a base chain");
    std::set<ChainId> seen;
    return Reaches(to, from, seen) ? absl::FailedPreconditionError("chains would jump in a circle")
                                   : absl::OkStatus();
  }

  bool IsJumpedTo(const ChainId& chain) const {
    return absl::c_any_of(state_, [&](const auto& entry) {
      const auto& [id, content] = entry;
      return id.family == chain.family && id.table == chain.table &&
             absl::c_any_of(content.rules, [&](const ObservedRule& rule) {
               const std::string* target = JumpTarget(rule);
               return target != nullptr && *target == chain.name;
             });
    });
  }

  bool Reaches(const ChainId& from, const ChainId& to, std::set<ChainId>& seen) const {
    if (from == to) return true;
    const auto found = state_.find(from);
    const bool is_new = seen.insert(from).second;
    return is_new && found != state_.end() &&
           absl::c_any_of(found->second.rules, [&](const ObservedRule& rule) {
             const std::string* target = JumpTarget(rule);
             return target != nullptr && Reaches({from.family, from.table, *target}, to, seen);
           });
  }

  ObservedChains state_;
  const bool random_fully_;
  std::set<ChainId> deleted_;
  std::vector<Operation> operations_;
};

bool Removes(const Operation& operation) {
  return std::holds_alternative<DeleteRule>(operation) ||
         std::holds_alternative<DeleteChain>(operation);
}

// Orders `operations` by table, as PlanRestore describes.
void SortByTable(const ObservedChains& state, std::vector<Operation>& operations) {
  const bool only_removes = absl::c_all_of(operations, [&](const Operation& operation) {
    const CreateChain* create = std::get_if<CreateChain>(&operation);
    return create != nullptr ? state.count(create->chain) != 0 : Removes(operation);
  });
  std::set<Family> changes_nat;
  for (const Operation& operation : operations) {
    const ChainId& chain = ChainOf(operation);
    if (chain.table == Table::kNat) changes_nat.insert(chain.family);
  }
  const auto rank = [&](const Operation& operation) {
    constexpr std::array kOrder = {Table::kMangle, Table::kFilter, Table::kNat};
    const ChainId& chain = ChainOf(operation);
    const auto place = absl::c_find(kOrder, chain.table) - kOrder.begin();
    if (only_removes) return -place;
    const bool after_nat =
        chain.table == Table::kFilter && Removes(operation) && changes_nat.contains(chain.family);
    return after_nat ? std::ssize(kOrder) : place;
  };
  absl::c_stable_sort(operations,
                      [&](const Operation& a, const auto& b) { return rank(a) < rank(b); });
}

}  // namespace

absl::StatusOr<netlink::Transaction> PlanRestore(ObservedChains state,
                                                 const netlink::Transaction& transaction,
                                                 bool random_fully) {
  std::vector<Operation> operations = transaction.operations;
  SortByTable(state, operations);
  Player player(std::move(state), random_fully);
  for (const Operation& operation : operations) {
    const absl::Status status = std::visit(player, operation);
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrCat(ToString(ChainOf(operation)), ": ", ToString(operation), ": ",
                                     status.message(), "; nothing was done"));
  }
  return netlink::Transaction{.generation = transaction.generation,
                              .operations = player.TakeOperations()};
}

std::string RestoreText(const netlink::Transaction& plan, Family family) {
  std::string text;
  netlink::Transaction part;
  for (const Operation& operation : plan.operations) {
    const ChainId& chain = ChainOf(operation);
    if (chain.family != family) continue;
    if (!part.empty() && ChainOf(part.operations.back()).table != chain.table) {
      text += ToRestoreText(std::exchange(part, {}), family);
    }
    part.operations.push_back(operation);
  }
  return text + ToRestoreText(part, family);
}

bool AddsConnLabel(const netlink::Transaction& plan, netlink::Family family) {
  return absl::c_any_of(plan.operations, [&](const Operation& each) {
    const AddRule* add = std::get_if<AddRule>(&each);
    return add != nullptr && add->chain.family == family && add->rule.conn_label.has_value();
  });
}

}  // namespace kipt::agent
