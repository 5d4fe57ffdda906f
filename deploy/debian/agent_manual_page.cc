// SPDX-License-Identifier: Apache-2.0
#include "agent/config/completion.h"
#include "deploy/debian/manual_page.h"

int main() { return kipt::packages::RunManualPage(kipt::agent::AgentCompletion()); }
