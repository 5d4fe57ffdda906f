// SPDX-License-Identifier: Apache-2.0
#include "netlink/nft_chain_list.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "netlink/attributes.h"
#include "netlink/base_chains.h"
#include "netlink/nft_requests.h"
#include "netlink/socket.h"

namespace kipt::netlink {
namespace {

// Nothing for a chain of another table. Other programs' chains may have any attribute, so the rest
// is not read.
std::optional<ListedChain> ParseChain(Family family, WireBytes message) {
  const std::optional<Attributes> attributes = Attributes::OfMessage(message);
  if (!attributes) return std::nullopt;
  const std::optional<Table> table = FindTable(attributes->Text(NFTA_CHAIN_TABLE).value_or(""));
  const std::optional<std::string> name = attributes->Text(NFTA_CHAIN_NAME);
  if (!table || !name) return std::nullopt;
  return ListedChain{.id = {.family = family, .table = *table, .name = *name},
                     .base = attributes->Bytes(NFTA_CHAIN_HOOK).has_value(),
                     .use = attributes->U32(NFTA_CHAIN_USE).value_or(0)};
}

absl::StatusOr<std::vector<ListedChain>> DumpChains(Socket& socket, Family family) {
  std::vector<ListedChain> chains;
  const absl::StatusOr<int> error =
      AskOne(socket, NFT_MSG_GETCHAIN, WireFamily(family), NLM_F_DUMP, {}, [&](WireBytes message) {
        std::optional<ListedChain> chain = ParseChain(family, message);
        if (chain) chains.push_back(*std::move(chain));
        return absl::OkStatus();
      });
  if (!error.ok()) return error.status();
  if (*error == 0) return chains;
  return NfTablesError(*error, absl::StrCat("listing the chains of family ", FamilyName(family)));
}

}  // namespace

absl::StatusOr<std::vector<ListedChain>> ListNftChains(Family family) {
  const absl::StatusOr<std::unique_ptr<Socket>> socket = Socket::Open();
  if (!socket.ok()) return socket.status();
  absl::StatusOr<std::vector<ListedChain>> chains = DumpChains(**socket, family);
  for (int attempt = 1; attempt < kReadAttempts && absl::IsAborted(chains.status()); ++attempt) {
    chains = DumpChains(**socket, family);
  }
  return chains;
}

}  // namespace kipt::netlink
