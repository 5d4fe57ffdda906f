// SPDX-License-Identifier: Apache-2.0
//
// ResolveOwnershipSettings of config_inputs.h.
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/config/config_inputs.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

absl::Status ResolveStaleChains(const ConfigInputs& inputs, Config& config) {
  const auto& flag = inputs.flags.stale_chains;
  const auto& field = inputs.file.stale_chains;
  const std::string text = ConfigInputs::Choose(flag, field, std::string("keep"));
  for (const StaleChains policy : {StaleChains::kKeep, StaleChains::kRetire}) {
    if (StaleChainsName(policy) != text) continue;
    config.stale_chains = policy;
    return absl::OkStatus();
  }
  return inputs.Blame("stale-chains", flag, "staleChains", field,
                      absl::StrCat("invalid value ", featuregates::QuoteForMessage(text),
                                   "; accepted are keep, retire"));
}

absl::Status ResolveHintPolicy(const ConfigInputs& inputs, Config& config) {
  const auto& flag = inputs.flags.hint_policy;
  const auto& field = inputs.file.hint_policy;
  const std::string text = ConfigInputs::Choose(flag, field, std::string("usable"));
  for (const HintPolicy policy : {HintPolicy::kUsable, HintPolicy::kAlways}) {
    if (HintPolicyName(policy) != text) continue;
    config.hint_policy = policy;
    return absl::OkStatus();
  }
  return inputs.Blame("hint-policy", flag, "hintPolicy", field,
                      absl::StrCat("invalid value ", featuregates::QuoteForMessage(text),
                                   "; accepted are usable, always"));
}

// Relative to what, a daemon could not say.
absl::Status ResolveCniConfDirs(const ConfigInputs& inputs, Config& config) {
  const auto& flag = inputs.flags.cni_conf_dir;
  const auto& field = inputs.file.cni_conf_dir;
  const std::string text = ConfigInputs::Choose(flag, field, std::string());
  if (text.empty()) return absl::OkStatus();
  config.cni_conf_dirs = absl::StrSplit(text, ',');
  for (const std::string& directory : config.cni_conf_dirs) {
    if (!directory.empty() && directory[0] == '/') continue;
    return inputs.Blame("cni-conf-dir", flag, "cniConfDir", field,
                        absl::StrCat("invalid value ", featuregates::QuoteForMessage(directory),
                                     "; give absolute paths with commas between them"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ResolveOwnershipSettings(const ConfigInputs& inputs, Config& config) {
  absl::Status status = ResolveStaleChains(inputs, config);
  if (status.ok()) status = ResolveHintPolicy(inputs, config);
  if (status.ok()) status = ResolveCniConfDirs(inputs, config);
  return status;
}

}  // namespace kipt::agent
