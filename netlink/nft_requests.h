// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/nft_requests.h
//
// GET requests of nf_tables, several in one datagram, and the one that every reading begins and
// ends with: the generation.
#ifndef KIPT_NETLINK_NFT_REQUESTS_H_
#define KIPT_NETLINK_NFT_REQUESTS_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "netlink/attributes.h"
#include "netlink/socket.h"

namespace kipt::netlink {

// Requests to be sent in one datagram.
class Requests {
 public:
  // Attributes that are texts, {type, value}.
  using Texts = std::initializer_list<std::pair<uint16_t, std::string>>;

  // `first` is the first one's sequence number.
  explicit Requests(uint32_t first) : first_(first) {}

  // `type` is an NFT_MSG_GET*, `family` an NFPROTO_*, `flags` NLM_F_* beside NLM_F_REQUEST.
  // `attributes` are two names of at most 255 bytes.
  void Add(uint16_t type, uint16_t family, uint16_t flags, Texts attributes);

  absl::Span<const uint8_t> bytes() const { return bytes_; }
  uint32_t first() const { return first_; }
  uint32_t count() const { return count_; }

 private:
  uint32_t first_;
  uint32_t count_ = 0;
  std::vector<uint8_t> bytes_;
};

// As Socket::Ask.
absl::Status Ask(Socket& socket, const Requests& requests,
                 const std::function<void(const Reply&)>& handle);

// Sends one request, as Requests::Add has it, and hands each message of the answer to `take`.
// Returns the errno that the kernel answered, 0 for none; or the first error of `take`, which is
// not called again then. Other errors as Socket::Ask.
absl::StatusOr<int> AskOne(Socket& socket, uint16_t type, uint16_t family, uint16_t flags,
                           Requests::Texts attributes,
                           absl::FunctionRef<absl::Status(WireBytes)> take);

// Unavailable if nfnetlink answers `error_number` because the kernel has no nf_tables; else as
// KernelError.
absl::Status NfTablesError(int error_number, absl::string_view action);

// The generation of the namespace's ruleset (NFTA_GEN_ID). A reading between two equal ones is of
// that one.
//
// Unavailable: this kernel has no nf_tables. Other codes as Socket::Ask and kernel_error.h have
// them.
absl::StatusOr<uint32_t> ReadGeneration(Socket& socket);

// As often as one may have to read until nobody commits meanwhile. A commit that adds or removes
// rules takes longer than a read, so more is a writer that never rests.
inline constexpr int kReadAttempts = 10;

// Calls `read` until the generation after it is the one before it, which is returned; `attempts`
// times at most. `read` starts over at each call. Where it fails with Aborted (an interrupted dump,
// a table that was there a moment ago) it is called again; other errors are returned.
//
// Aborted: the ruleset kept changing. Other codes as ReadGeneration has them.
absl::StatusOr<uint32_t> AtOneGeneration(Socket& socket, const std::function<absl::Status()>& read,
                                         int attempts = kReadAttempts);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NFT_REQUESTS_H_
