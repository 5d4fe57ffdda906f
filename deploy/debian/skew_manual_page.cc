// SPDX-License-Identifier: Apache-2.0
#include "deploy/debian/manual_page.h"
#include "tests/skew/completion.h"

int main() { return kipt::packages::RunManualPage(kipt::skew::SkewCompletion()); }
