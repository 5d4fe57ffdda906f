// SPDX-License-Identifier: Apache-2.0
//
// gates RELEASE FEATURE_GATES: which iptables chains would the kubelet of that release own with
// these gates?
//
//   $ gates 1.27 IPTablesOwnershipCleanup=false
//   legacy
#include <iostream>

#include "absl/status/statusor.h"
#include "featuregates/feature_gates.h"
#include "featuregates/known_features.h"

namespace {

namespace fg = kipt::featuregates;

absl::StatusOr<const char*> Mode(absl::string_view release, absl::string_view text) {
  const absl::StatusOr<fg::EmulatedVersion> emulated = fg::ResolveEmulatedVersion(release);
  if (!emulated.ok()) return emulated.status();
  const absl::StatusOr<fg::GateValues> values = fg::ParseFeatureGatesFlag(text);
  if (!values.ok()) return values.status();
  const absl::StatusOr<fg::FeatureGates> gates = fg::FeatureGates::Resolve(
      {fg::KubeletComponent(emulated->version)}, {fg::Overrides{.values = *values}});
  if (!gates.ok()) return gates.status();
  return gates->Enabled(fg::kIPTablesOwnershipCleanup) ? "cleanup" : "legacy";
}

}  // namespace

int main(int argc, char** argv) {
  const absl::StatusOr<const char*> mode = Mode(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  if (!mode.ok()) {
    std::cerr << mode.status().message() << "\n";
    return 64;
  }
  std::cout << *mode << "\n";
  return 0;
}
