// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_AGENT_BUILD_H_
#define KIPT_AGENT_BUILD_H_

#include "agent/report/report.h"

namespace kipt::agent {

Build ThisBuild();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_BUILD_H_
