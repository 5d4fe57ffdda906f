// SPDX-License-Identifier: Apache-2.0
//
// GET requests of nf_tables, several in one datagram, and what is read with them at one generation,
// such as native tables.
#ifndef KIPT_NETLINK_NFT_REQUESTS_H_
#define KIPT_NETLINK_NFT_REQUESTS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "netlink/attributes.h"
#include "netlink/requests.h"
#include "netlink/socket.h"
#include "netlink/transaction.h"

namespace kipt::netlink {

// Sends requests for one object each and hands the replies of `type` (an NFT_MSG_NEW*) to `take`,
// with their places among the requests. What does not exist is left out. `take` returns false for a
// malformed one; `action` is for errors: Socket::Ask's, KernelError and DataLoss.
absl::Status AskEach(Socket& socket, const Requests& requests, uint16_t type,
                     absl::FunctionRef<std::string(size_t)> action,
                     absl::FunctionRef<bool(size_t, const Attributes&)> take);

// Sends one request (Requests::Begin) and hands each message of the answer to `take`, until that
// fails. Returns the errno that the kernel answered, 0 for none. Errors: `take`'s, Socket::Ask's.
absl::StatusOr<int> AskOne(Socket& socket, uint16_t type, uint16_t family, uint16_t flags,
                           Requests::Texts attributes,
                           absl::FunctionRef<absl::Status(WireBytes)> take);

// The generation of the namespace's ruleset (NFTA_GEN_ID).
//
// Unavailable: this kernel has no nf_tables. Other codes as Socket::Ask and KernelError.
absl::StatusOr<uint32_t> ReadGeneration(Socket& socket);

// Returns 20 ms later, and once no transaction is open that another program had begun: what it adds
// is counted before it is committed, and before it can be listed. Blocks as long as Backend::Apply
// would. An empty batch waits so, and commits nothing; where it is refused, only the time passes.
void AwaitTransactions(Socket& socket);

// How often fewer rules must be listed than are counted, with AwaitTransactions in between, until
// that is certain: the next transaction may be open at once.
inline constexpr int kCompletenessAttempts = 5;

// A commit of rules takes longer than a read, so only a program that writes without a pause needs
// more attempts than these, or a chain of so many rules that a read takes about as long as this.
inline constexpr int kReadAttempts = 10;
inline constexpr std::chrono::milliseconds kReadPatience(200);

// Calls `read`, which starts over each time, with the current generation, until it has not failed
// with Aborted and the generation after it is the same. Returns it, or any other error of `read`.
//
// Aborted: the ruleset changed during all `attempts`, or all that began within kReadPatience. Other
// codes as ReadGeneration.
absl::StatusOr<uint32_t> AtOneGeneration(Socket& socket,
                                         absl::FunctionRef<absl::Status(uint32_t)> read,
                                         int attempts);

// Sets `observed` if there is such a table. Aborted: it changed meanwhile.
absl::Status ReadNativeOnce(Socket& socket, const NativeTable& table,
                            std::optional<ObservedNativeTable>& observed);

// Compares the kernel's messages about a table, whose chains may come in any order, with what we
// would write. Any difference, whatever the bytes, makes the table altered.
class NativeComparison {
 public:
  // `table` must outlive the comparison.
  explicit NativeComparison(const NativeTable& table) : table_(table) {}

  // NFT_MSG_NEWTABLE, NEWCHAIN and NEWRULE of this table, their nlmsghdr included.
  void AddTable(WireBytes message);
  void AddChain(WireBytes message);
  void AddRule(WireBytes message);

  // Once all are added. ResourceExhausted: no memory to compare a rule.
  absl::StatusOr<ObservedNativeTable> Finish() const;

 private:
  const NativeChain* FindChain(const std::optional<std::string>& name) const;

  const NativeTable& table_;
  ObservedNativeTable observed_;
  absl::Status status_;
  struct Added {
    bool chain = false;
    size_t rules = 0;
  };
  std::map<std::string, Added> added_;  // by the chain's name
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NFT_REQUESTS_H_
