// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/nft_requests.h
//
// GET requests of nf_tables, several in one datagram, the generation that every reading begins and
// ends with, and surveys.
#ifndef KIPT_NETLINK_NFT_REQUESTS_H_
#define KIPT_NETLINK_NFT_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "netlink/attributes.h"
#include "netlink/socket.h"
#include "netlink/survey.h"

namespace kipt::netlink {

// Sends requests for one thing each and hands the replies of `type` (an NFT_MSG_NEW*) to `take`,
// with their places among the requests. What does not exist is left out. `take` answers false where
// it is malformed; `action` is for errors: those of Socket::Ask, KernelError and DataLoss.
absl::Status AskEach(Socket& socket, const Messages& requests, uint16_t type,
                     absl::FunctionRef<std::string(size_t)> action,
                     absl::FunctionRef<bool(size_t, const Attributes&)> take);

// Sends one request (Messages::Begin) and hands each message of the answer to `take`. Returns the
// errno that the kernel answered, 0 for none; or the first error of `take`, which ends the calls.
// Other errors as Socket::Ask.
absl::StatusOr<int> AskOne(Socket& socket, uint16_t type, uint16_t family, uint16_t flags,
                           Messages::Texts attributes,
                           absl::FunctionRef<absl::Status(WireBytes)> take);

// The generation of the namespace's ruleset (NFTA_GEN_ID).
//
// Unavailable: this kernel has no nf_tables. Other codes as Socket::Ask and KernelError.
absl::StatusOr<uint32_t> ReadGeneration(Socket& socket);

// A commit that adds or removes rules takes longer than a read, so more than these attempts to read
// between two commits is a writer that never rests.
inline constexpr int kReadAttempts = 10;

// Calls `read` until the generation after it is the one before it, which is returned; `attempts`
// times at most. `read` starts over at each call. Where it fails with Aborted (an interrupted dump,
// a table that was there a moment ago) it is called again; other errors are returned.
//
// Aborted: the ruleset kept changing. Other codes as ReadGeneration has them.
absl::StatusOr<uint32_t> AtOneGeneration(Socket& socket, absl::FunctionRef<absl::Status()> read,
                                         int attempts = kReadAttempts);

// Backend::TakeSurvey for the namespace that `socket` was opened in.
absl::StatusOr<Survey> TakeNftSurvey(Socket& socket, const SurveyFilter& keep);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NFT_REQUESTS_H_
