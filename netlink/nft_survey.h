// SPDX-License-Identifier: Apache-2.0
//
// All chains and rules of all tables at one generation, and whether the kernel has listed them all.
#ifndef KIPT_NETLINK_NFT_SURVEY_H_
#define KIPT_NETLINK_NFT_SURVEY_H_

#include "absl/status/statusor.h"
#include "netlink/socket.h"
#include "netlink/survey.h"

namespace kipt::netlink {

// Backend::TakeSurvey and SiftSurvey for the namespace that `socket` was opened in.
absl::StatusOr<Survey> TakeNftSurvey(Socket& socket, const SurveyFilter& keep);
absl::StatusOr<Survey> SiftNftSurvey(Socket& socket, SurveySieve& sieve);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NFT_SURVEY_H_
