// SPDX-License-Identifier: Apache-2.0
//
// A configuration file, both kinds, from its bytes to the effective configuration: a refusal names
// the line, and what is taken is in range.
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/config/load_config.h"
#include "agent/config/yaml_document.h"
#include "agent/process/files.h"
#include "tests/fuzz/config_text.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"

namespace kipt::testing {
namespace {

using agent::YamlNode;

// A regular file that is nowhere.
agent::OwnedFd FileOf(absl::string_view text) {
  agent::OwnedFd fd(memfd_create("fuzz", MFD_CLOEXEC));
  KIPT_REQUIRE(fd.valid());
  KIPT_REQUIRE(write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  return fd;
}

size_t CheckNode(const YamlNode& node, size_t depth, bool unique) {
  KIPT_REQUIRE(depth <= agent::kMaxYamlDepth + 1);
  KIPT_REQUIRE(node.line >= 1);
  size_t nodes = 1;
  for (const YamlNode& item : node.items) nodes += CheckNode(item, depth + 1, unique);
  for (const agent::YamlEntry& entry : node.entries) {
    // No key twice, so Find returns this entry.
    KIPT_REQUIRE(!unique || node.Find(entry.key.text) == &entry.value);
    nodes += CheckNode(entry.value, depth + 1, unique);
  }
  return nodes;
}

void CheckDocument(absl::string_view text) {
  for (const bool strict : {true, false}) {
    const auto document = (strict ? agent::YamlDocument::Parse
                                  : agent::YamlDocument::ParseLeniently)("fuzz.yaml", text);
    if (document.ok()) {
      KIPT_REQUIRE(CheckNode(document->root(), 1, strict) <= agent::kMaxYamlNodes + 1);
    } else {
      KIPT_REQUIRE(absl::StartsWith(document.status().message(), "fuzz.yaml:"));
    }
  }
}

}  // namespace

void FuzzConfigFile(FuzzBytes input) {
  const absl::string_view text = AsText(input);
  CheckDocument(text);
  const absl::StatusOr<agent::ConfigFile> file = agent::ParseConfigFile("fuzz.yaml", text);
  if (!file.ok()) {
    KIPT_REQUIRE(absl::IsInvalidArgument(file.status()));
    KIPT_REQUIRE(absl::StartsWith(file.status().message(), "fuzz.yaml:"));
  }
  const agent::OwnedFd fd = FileOf(text);
  const auto config = LoadAndCheck({.config = absl::StrCat("/proc/self/fd/", fd.get())});
  KIPT_REQUIRE(file.ok() || !config.ok());
}

}  // namespace kipt::testing
