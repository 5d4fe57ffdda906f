// SPDX-License-Identifier: Apache-2.0
#include "netlink/native_reader.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <cerrno>
#include <optional>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "netlink/attributes.h"
#include "netlink/kernel_error.h"
#include "netlink/native_decoder.h"
#include "netlink/nft_requests.h"

namespace kipt::netlink {
namespace {

// Reads what makes up one table.
class TableReader {
 public:
  TableReader(Socket& socket, Family family, const std::string& name)
      : socket_(socket),
        family_(family),
        name_(name),
        action_(absl::StrCat("reading the table ", FamilyName(family), " ", name)),
        decoder_(family, name) {}

  // Nothing: there is no such table. Aborted: it changed meanwhile.
  absl::StatusOr<std::optional<ObservedNativeTable>> Read() && {
    const absl::StatusOr<int> error = Ask(NFT_MSG_GETTABLE, 0, {{NFTA_TABLE_NAME, name_}},
                                          [&](WireBytes message) { decoder_.AddTable(message); });
    if (!error.ok()) return error.status();
    if (*error == ENOENT) return std::optional<ObservedNativeTable>();
    if (*error != 0) return KernelError(*error, action_);
    absl::Status status = Request(NFT_MSG_GETRULE, NLM_F_DUMP, {{NFTA_RULE_TABLE, name_}},
                                  [&](WireBytes message) { decoder_.AddRule(message); });
    const std::set<std::string> chains = decoder_.ChainsOfRules();
    if (status.ok()) {
      // NFTA_TABLE_USE also counts what a transaction of somebody else's has begun and may yet
      // abort: where it does not fit, it is looked for.
      status = chains.size() == decoder_.use() ? ReadChains(chains) : ReadEverything();
    }
    if (!status.ok()) return status;
    return std::make_optional(std::move(decoder_).Finish());
  }

 private:
  // The kernel tells a chain by its name, and lists only all chains of a family: they may be tens
  // of thousands.
  absl::Status ReadChains(const std::set<std::string>& names) {
    for (const std::string& chain : names) {
      absl::Status status =
          Request(NFT_MSG_GETCHAIN, 0, {{NFTA_CHAIN_TABLE, name_}, {NFTA_CHAIN_NAME, chain}},
                  [&](WireBytes message) { decoder_.AddChain(message); });
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ReadEverything() {
    absl::Status status = Request(NFT_MSG_GETCHAIN, NLM_F_DUMP, {}, [&](WireBytes message) {
      if (IsOfThisTable(message)) decoder_.AddChain(message);
    });
    // NFTA_SET_TABLE, NFTA_OBJ_TABLE and NFTA_FLOWTABLE_TABLE are one number.
    for (const uint16_t type : {NFT_MSG_GETSET, NFT_MSG_GETOBJ, NFT_MSG_GETFLOWTABLE}) {
      if (!status.ok()) return status;
      status = Request(type, NLM_F_DUMP, {{NFTA_SET_TABLE, name_}}, [&](WireBytes message) {
        if (IsOfThisTable(message)) decoder_.AddOther();
      });
    }
    return status;
  }

  // The table's name is attribute 1 of chains, sets, objects and flow tables alike.
  bool IsOfThisTable(WireBytes message) const {
    const std::optional<Attributes> attributes = Attributes::OfMessage(message);
    return attributes && attributes->Text(NFTA_CHAIN_TABLE) == name_;
  }

  absl::StatusOr<int> Ask(uint16_t type, uint16_t flags, Requests::Texts names,
                          absl::FunctionRef<void(WireBytes)> handle) {
    return AskOne(socket_, type, WireFamily(family_), flags, names, [&](WireBytes message) {
      handle(message);
      return absl::OkStatus();
    });
  }

  // For what belongs to the table: if it was there a moment ago and is gone, the table has changed.
  absl::Status Request(uint16_t type, uint16_t flags, Requests::Texts names,
                       absl::FunctionRef<void(WireBytes)> handle) {
    const absl::StatusOr<int> error = Ask(type, flags, names, handle);
    if (!error.ok()) return error.status();
    if (*error == ENOENT)
      return absl::AbortedError(absl::StrCat(action_, ": it changed meanwhile"));
    return *error == 0 ? absl::OkStatus() : KernelError(*error, action_);
  }

  Socket& socket_;
  const Family family_;
  const std::string& name_;
  const std::string action_;
  NativeTableDecoder decoder_;
};

}  // namespace

absl::StatusOr<NativeReading> ReadNativeTable(Socket& socket, Family family,
                                              const std::string& name) {
  NativeReading reading;
  const absl::StatusOr<uint32_t> generation = AtOneGeneration(socket, [&]() -> absl::Status {
    absl::StatusOr<std::optional<ObservedNativeTable>> table =
        TableReader(socket, family, name).Read();
    if (!table.ok()) return table.status();
    reading.table = *std::move(table);
    return absl::OkStatus();
  });
  if (!generation.ok()) return generation.status();
  reading.generation = *generation;
  return reading;
}

}  // namespace kipt::netlink
