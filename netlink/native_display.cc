// SPDX-License-Identifier: Apache-2.0
#include "netlink/native_display.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_tables.h>

#include <cstdint>
#include <optional>

#include "netlink/xt_display.h"

namespace kipt::netlink {
namespace {

std::optional<std::string> Limit(const Attributes& data) {
  if (!data.HasOnly({NFTA_LIMIT_RATE, NFTA_LIMIT_UNIT, NFTA_LIMIT_BURST, NFTA_LIMIT_TYPE,
                     NFTA_LIMIT_FLAGS, NFTA_LIMIT_PAD})) {
    return std::nullopt;
  }
  const auto rate = data.U64(NFTA_LIMIT_RATE);
  const auto unit = data.U64(NFTA_LIMIT_UNIT);  // seconds
  const auto burst = data.U32(NFTA_LIMIT_BURST);
  const bool counts_packets = data.U32(NFTA_LIMIT_TYPE).value_or(NFT_LIMIT_PKTS) == NFT_LIMIT_PKTS;
  if (!rate || !unit || !burst || !counts_packets || data.U32(NFTA_LIMIT_FLAGS).value_or(0) != 0) {
    return std::nullopt;
  }
  // Ten thousandths of a second, XT_LIMIT_SCALE.
  constexpr uint64_t kScale = 10000;
  if (*rate == 0 || *unit > UINT32_MAX) return std::nullopt;
  return LimitText(*unit * kScale / *rate, *burst);
}

// Without a group it is the kernel's log, in other words than LOG's.
std::optional<std::string> Log(const Attributes& data) {
  if (!data.HasOnly({NFTA_LOG_GROUP, NFTA_LOG_PREFIX, NFTA_LOG_SNAPLEN, NFTA_LOG_QTHRESHOLD})) {
    return std::nullopt;
  }
  const auto group = data.U16(NFTA_LOG_GROUP);
  const auto threshold = data.U16(NFTA_LOG_QTHRESHOLD);
  if (!group || (data.Bytes(NFTA_LOG_QTHRESHOLD) && !threshold)) return std::nullopt;
  return NflogText({.prefix = data.Text(NFTA_LOG_PREFIX).value_or(""),
                    .group = *group,
                    .copy_bytes = data.U32(NFTA_LOG_SNAPLEN).value_or(0),
                    .threshold = threshold.value_or(0)});
}

}  // namespace

std::string DisplayNative(absl::string_view name, const Attributes& data) {
  if (name == "limit") return Limit(data).value_or("");
  if (name == "log") return Log(data).value_or("");
  return "";
}

}  // namespace kipt::netlink
