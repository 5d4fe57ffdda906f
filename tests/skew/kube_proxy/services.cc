// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/kube_proxy/services.h"

namespace kipt::skew {

const char* NameOf(Protocol protocol) { return protocol == Protocol::kTcp ? "tcp" : "udp"; }

}  // namespace kipt::skew
