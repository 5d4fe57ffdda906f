// SPDX-License-Identifier: Apache-2.0
#include "netlink/nft_requests.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <libmnl/libmnl.h>
#include <libnftnl/common.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <cerrno>
#include <optional>

#include "absl/strings/str_cat.h"
#include "netlink/kernel_error.h"

namespace kipt::netlink {

void Requests::Add(uint16_t type, uint16_t family, uint16_t flags, Texts attributes) {
  size_t size = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(nfgenmsg));
  for (const auto& [attribute, text] : attributes) {
    size += MNL_ALIGN(MNL_ATTR_HDRLEN + text.size() + 1);
  }
  const size_t offset = bytes_.size();
  bytes_.resize(offset + size, 0);
  nlmsghdr* header = nftnl_nlmsg_build_hdr(reinterpret_cast<char*>(bytes_.data() + offset), type,
                                           family, flags, first_ + count_);
  for (const auto& [attribute, text] : attributes) {
    mnl_attr_put_strz(header, attribute, text.c_str());
  }
  bytes_.resize(offset + NLMSG_ALIGN(header->nlmsg_len));
  ++count_;
}

absl::Status Ask(Socket& socket, const Requests& requests,
                 const std::function<void(const Reply&)>& handle) {
  return socket.Ask(requests.bytes(), requests.first(), requests.count(), handle);
}

absl::StatusOr<int> AskOne(Socket& socket, uint16_t type, uint16_t family, uint16_t flags,
                           Requests::Texts attributes,
                           absl::FunctionRef<absl::Status(WireBytes)> take) {
  Requests requests(socket.ReserveSequences(1));
  requests.Add(type, family, flags, attributes);
  absl::Status taken;
  int error = 0;
  absl::Status asked = Ask(socket, requests, [&](const Reply& reply) {
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
