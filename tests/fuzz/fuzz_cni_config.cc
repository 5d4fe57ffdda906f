// SPDX-License-Identifier: Apache-2.0
//
// The reader of CNI configurations on any text.
#include <cstdint>
#include <cstdlib>

#include "agent/detect/cni_configs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto references = kipt::agent::ParseCniConfig("fuzz.conflist", text);
  if (!references.ok()) return 0;
  for (const kipt::agent::CniReference& reference : *references) {
    if (reference.file != "fuzz.conflist" || reference.chain.empty()) std::abort();
  }
  return 0;
}
