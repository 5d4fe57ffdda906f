// SPDX-License-Identifier: Apache-2.0
#include "netlink/nft_requests.h"

#include <cerrno>
#include <optional>

#include "absl/strings/str_cat.h"
#include "netlink/kernel_error.h"
#include "netlink/nf_tables.h"

namespace kipt::netlink {

absl::Status AskEach(Socket& socket, const Messages& requests, uint16_t type,
                     absl::FunctionRef<std::string(size_t)> action,
                     absl::FunctionRef<bool(size_t, const Attributes&)> take) {
  absl::Status status;
  absl::Status asked = socket.Ask(requests, [&](const Reply& reply) {
    const size_t place = reply.sequence - requests.first();
    if (reply.message == nullptr) {
      if (reply.error_number != ENOENT) {
        status.Update(KernelError(reply.error_number, action(place)));
      }
      return;
    }
    const std::optional<Attributes> attributes = Attributes::OfMessage(MessageBytes(reply.message));
    if (!attributes || reply.message->nlmsg_type != NftMessageType(type) ||
        !take(place, *attributes)) {
      status.Update(absl::DataLossError(absl::StrCat(action(place), ": its message is malformed")));
    }
  });
  return asked.ok() ? status : asked;
}

absl::StatusOr<int> AskOne(Socket& socket, uint16_t type, uint16_t family, uint16_t flags,
                           Messages::Texts attributes,
                           absl::FunctionRef<absl::Status(WireBytes)> take) {
  Messages requests(socket.ReserveSequences(1));
  requests.Begin(NftMessageType(type), family, flags, attributes);
  absl::Status taken;
  int error = 0;
  absl::Status asked = socket.Ask(requests, [&](const Reply& reply) {
    if (reply.message == nullptr) {
      error = reply.error_number;
    } else if (taken.ok()) {
      taken = take(MessageBytes(reply.message));
    }
  });
  asked.Update(taken);
  if (!asked.ok()) return asked;
  return error;
}

absl::Status NfTablesError(int error_number, absl::string_view action) {
  // nfnetlink answers so for a subsystem that it does not have and cannot load.
  if (error_number == EINVAL || error_number == EOPNOTSUPP) {
    return absl::UnavailableError("this kernel has no nf_tables");
  }
  return KernelError(error_number, action);
}

absl::StatusOr<uint32_t> ReadGeneration(Socket& socket) {
  std::optional<uint32_t> generation;
  const absl::StatusOr<int> error =
      AskOne(socket, NFT_MSG_GETGEN, NFPROTO_UNSPEC, 0, {}, [&](WireBytes message) {
        const std::optional<Attributes> attributes = Attributes::OfMessage(message);
        if (attributes) generation = attributes->U32(NFTA_GEN_ID);
        return absl::OkStatus();
      });
  if (!error.ok()) return error.status();
  if (*error != 0) return NfTablesError(*error, "reading the generation of the ruleset");
  if (!generation) return absl::DataLossError("nf_tables did not say its generation");
  return *generation;
}

absl::StatusOr<uint32_t> AtOneGeneration(Socket& socket, const std::function<absl::Status()>& read,
                                         int attempts) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const absl::StatusOr<uint32_t> before = ReadGeneration(socket);
    if (!before.ok()) return before.status();
    const absl::Status status = read();
    if (absl::IsAborted(status)) continue;
    if (!status.ok()) return status;
    absl::StatusOr<uint32_t> after = ReadGeneration(socket);
    if (!after.ok() || *after == *before) return after;
  }
  return absl::AbortedError(attempts == 1 ? "the ruleset changed while it was read"
                                          : absl::StrCat("the ruleset changed during each of ",
                                                         attempts, " attempts to read it"));
}

}  // namespace kipt::netlink
