// SPDX-License-Identifier: Apache-2.0
//
// The test's own reader of rules. It decides when the rules of a guard did not exist, so none of it
// is the product's: nft rules come from the kernel through libnftnl, iptables-legacy rules are the
// text of iptables-legacy-save.
#ifndef KIPT_TESTS_SOAK_SIGHT_H_
#define KIPT_TESTS_SOAK_SIGHT_H_

#include <libmnl/libmnl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/soak/windows.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::soak {

// `-m mark`: with `negated`, every packet whose mark differs.
struct MarkMatch {
  uint32_t value = 0;
  uint32_t mask = 0;
  bool negated = false;
  bool operator==(const MarkMatch&) const = default;
};

// `-j MARK`: the packet's mark becomes (mark & ~mask) ^ value.
struct MarkChange {
  uint32_t value = 0;
  uint32_t mask = 0;
  bool operator==(const MarkChange&) const = default;
};

// What a guard can depend on in a rule. Everything else in the rule is left out.
struct SeenRule {
  // "DROP", "RETURN", "MASQUERADE", "MARK", or the chain that the rule jumps to.
  std::string target = {};
  std::optional<MarkChange> sets = {};
  std::optional<MarkMatch> mark = {};
  bool destination = false;
  bool ct_state = false;
  bool operator==(const SeenRule&) const = default;
};

// Family, table, chain.
using ChainKey = std::tuple<testing::IpFamily, std::string, std::string>;
using SeenChains = std::map<ChainKey, std::vector<SeenRule>>;

// The chains that the guards are made of, of both families.
const std::vector<ChainKey>& WatchedChains();

// For each guard: whether the kernel has all of its rules, and its users' rules.
Sight SightOf(const SeenChains& chains);

// The watched chains in the output of iptables-save.
void AddSavedRules(const std::string& saved, testing::IpFamily family, SeenChains& chains);

// Reads the watched chains from nf_tables in the network namespace it was made in.
class NftRuleReader {
 public:
  static absl::StatusOr<std::unique_ptr<NftRuleReader>> Create();

  // Aborted: another process committed in the meantime.
  absl::StatusOr<SeenChains> Read();

 private:
  using Socket = std::unique_ptr<mnl_socket, int (*)(mnl_socket*)>;
  explicit NftRuleReader(Socket socket) : socket_(std::move(socket)) {}
  absl::StatusOr<uint32_t> Generation();
  absl::StatusOr<std::vector<SeenRule>> RulesOf(const ChainKey& chain);
  absl::Status Exchange(const nlmsghdr& request, mnl_cb_t read, void* data);

  const Socket socket_;
  uint32_t sequence_ = 0;
};

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_SIGHT_H_
