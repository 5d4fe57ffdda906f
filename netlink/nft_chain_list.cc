// SPDX-License-Identifier: Apache-2.0
#include "netlink/nft_chain_list.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <libmnl/libmnl.h>
#include <libnftnl/common.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "netlink/attributes.h"
#include "netlink/kernel_error.h"
#include "netlink/socket.h"

namespace kipt::netlink {
namespace {

// As for NftBackend::Read: more is a writer that never rests.
constexpr int kAttempts = 10;

std::optional<Table> FindTable(const std::optional<std::string>& name) {
  for (const Table table : kTables) {
    if (name && TableName(table) == *name) return table;
  }
  return std::nullopt;
}

// Nothing for a chain of another table. Other people's chains may have any attribute: what is not
// asked for is not looked at.
std::optional<ListedChain> ParseChain(Family family, const nlmsghdr* message) {
  const std::optional<Attributes> attributes = Attributes::OfMessage(MessageBytes(message));
  if (!attributes) return std::nullopt;
  const std::optional<Table> table = FindTable(attributes->Text(NFTA_CHAIN_TABLE));
  const std::optional<std::string> name = attributes->Text(NFTA_CHAIN_NAME);
  if (!table || !name) return std::nullopt;
  return ListedChain{.id = {.family = family, .table = *table, .name = *name},
                     .base = attributes->Bytes(NFTA_CHAIN_HOOK).has_value(),
                     .use = attributes->U32(NFTA_CHAIN_USE).value_or(0)};
}

absl::StatusOr<std::vector<ListedChain>> DumpChains(Socket& socket, Family family) {
  const uint32_t sequence = socket.ReserveSequences(1);
  std::array<char, NLMSG_ALIGN(NLMSG_HDRLEN + sizeof(nfgenmsg))> buffer = {};
  const nlmsghdr* request = nftnl_nlmsg_build_hdr(buffer.data(), NFT_MSG_GETCHAIN,
                                                  WireFamily(family), NLM_F_DUMP, sequence);
  std::vector<ListedChain> chains;
  int error = 0;
  const absl::Status asked =
      socket.Ask(WireBytes(reinterpret_cast<const uint8_t*>(request), request->nlmsg_len), sequence,
                 1, [&](const Reply& reply) {
                   error = reply.error_number;
                   if (reply.message == nullptr) return;
                   std::optional<ListedChain> chain = ParseChain(family, reply.message);
                   if (chain) chains.push_back(*std::move(chain));
                 });
  if (!asked.ok()) return asked;
  // nfnetlink answers so for a subsystem that it does not have and cannot load.
  if (error == EINVAL || error == EOPNOTSUPP) {
    return absl::UnavailableError("this kernel has no nf_tables");
  }
  if (error != 0) {
    return KernelError(error, absl::StrCat("listing the chains of family ", FamilyName(family)));
  }
  return chains;
}

}  // namespace

absl::StatusOr<std::vector<ListedChain>> ListNftChains(Family family) {
  const absl::StatusOr<std::unique_ptr<Socket>> socket = Socket::Open();
  if (!socket.ok()) return socket.status();
  absl::StatusOr<std::vector<ListedChain>> chains = DumpChains(**socket, family);
  for (int attempt = 1; attempt < kAttempts && absl::IsAborted(chains.status()); ++attempt) {
    chains = DumpChains(**socket, family);
  }
  return chains;
}

}  // namespace kipt::netlink
