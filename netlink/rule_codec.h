// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/rule_codec.h
//
// Rules as nf_tables holds them. Encoding has one form, which every iptables 1.8.x reads right;
// decoding accepts every form that iptables-nft of any version, nft and we ourselves write, and
// nothing whose meaning differs. README.md of this folder lists them.
#ifndef KIPT_NETLINK_RULE_CODEC_H_
#define KIPT_NETLINK_RULE_CODEC_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "netlink/attributes.h"
#include "netlink/rule_builder.h"
#include "netlink/ruleset.h"
#include "netlink/survey.h"

namespace kipt::netlink {

// `rule` in `chain`, ready for nftnl_rule_nlmsg_build_payload(); no handle, no position.
// InvalidArgument: the wire cannot say it (a comment of more than 255 bytes, a prefix longer than
// an address or with host bits, a chain name that is empty or too long, a NUL in a text).
absl::StatusOr<NftnlRulePtr> EncodeRule(const ChainId& chain, const Rule& rule);

// InvalidArgument where `name` cannot be a chain's.
absl::Status CheckChainName(absl::string_view name);

// One rule from an NFT_MSG_NEWRULE message, its nlmsghdr included. Takes any bytes. A rule that
// cannot be understood is opaque.
// DataLoss: not even the family and the handle can be read, or the family is none of ours.
absl::StatusOr<ObservedRule> DecodeRule(WireBytes message);

// As DecodeRule, of any family, and with the spelling.
absl::StatusOr<SurveyRule> DecodeSurveyRule(WireBytes message);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_RULE_CODEC_H_
