// SPDX-License-Identifier: Apache-2.0
//
// Rules as nf_tables holds them. Encoding has one form, which every iptables 1.8.x reads correctly
// (for native rules: nft(8)'s). Decoding accepts every form that iptables-nft, nft and we write
// (README.md), and nothing whose meaning differs.
#ifndef KIPT_NETLINK_RULE_CODEC_H_
#define KIPT_NETLINK_RULE_CODEC_H_

#include <linux/netlink.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netlink/attributes.h"
#include "netlink/ruleset.h"
#include "netlink/survey.h"
#include "netlink/transaction.h"

namespace kipt::netlink {

// InvalidArgument: `name` cannot be a chain's.
absl::Status CheckChainName(absl::string_view name);

// Puts the table, the chain and the expressions of `rule` into a message that was just begun.
// InvalidArgument, and nothing is put: nf_tables cannot hold it (a comment of more than 255 bytes,
// a prefix longer than an address or with host bits, an empty or too long chain name, a NUL in a
// text). ResourceExhausted: an allocation failed.
absl::Status EncodeRule(const ChainId& chain, const Rule& rule, nlmsghdr* to);

// InvalidArgument: nf_tables cannot hold it, or nft(8) could not read its own listing of it (a
// comment of more than 127 bytes, or with a quote or a control character).
absl::Status CheckDrop(Family family, const NativeDrop& drop);

// Puts the same of a rule that passes CheckDrop, with its comment. ResourceExhausted: an allocation
// failed, and nothing is put.
absl::Status EncodeDrop(const NativeTable& table, const std::string& chain, const NativeDrop& drop,
                        nlmsghdr* to);

// kSurvey: a rule of any family, with its spelling.
enum class DecodeFor : uint8_t { kSnapshot, kSurvey };

// One rule from an NFT_MSG_NEWRULE message, its nlmsghdr included, of any bytes.
// DataLoss: the family or the handle cannot be read, or a snapshot has no such family.
absl::StatusOr<SurveyRule> DecodeRule(WireBytes message, DecodeFor purpose = DecodeFor::kSnapshot);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_RULE_CODEC_H_
