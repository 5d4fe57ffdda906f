// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/nft_survey.h
//
// Everything that nf_tables holds: a dump of all tables, one of all chains, and one of each chain's
// rules.
#ifndef KIPT_NETLINK_NFT_SURVEY_H_
#define KIPT_NETLINK_NFT_SURVEY_H_

#include "absl/status/statusor.h"
#include "netlink/socket.h"
#include "netlink/survey.h"

namespace kipt::netlink {

// Backend::TakeSurvey for the namespace that `socket` was opened in. `keep` sees each rule as soon
// as it is read.
absl::StatusOr<Survey> TakeNftSurvey(Socket& socket, const SurveyFilter& keep);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NFT_SURVEY_H_
