// SPDX-License-Identifier: Apache-2.0
//
// A kubelet makes its canaries last, after each of its syncs. So they are removed before it starts,
// and when they are back it has synced.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/actors/stopped_program.h"
#include "tests/support/background_program.h"
#include "tests/support/scratch_directory.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

constexpr char kCanary[] = "KUBE-KUBELET-CANARY";
// It checks its canary once a minute.
constexpr absl::Duration kPatience = absl::Minutes(2);

class ProgramKubelet : public NodeAgent {
 public:
  ProgramKubelet(std::string program, const KubeletSettings& settings)
      : program_(std::move(program)), settings_(settings) {
    for (const IpFamily family : testing::kBothFamilies) {
      if (family == IpFamily::kIpv6 && !Does(settings.version.version, Trait::kKubeletIpv6)) {
        continue;
      }
      families_.push_back(family);
    }
  }

  std::string name() const override {
    return absl::StrCat(program_, " as kubelet ", ToString(settings_.version));
  }

  Act Start() override {
    if (!LinkIptables(directory_, settings_.iptables.mode)) {
      return {.ok = false, .error = "no directory of its own in /run"};
    }
    for (const IpFamily family : families_) {
      for (const char* table : {"mangle", "nat", "filter"}) {
        settings_.iptables.Of(family).Run({"-w", "5", "-t", table, "-X", kCanary});
      }
    }
    kubelet_.Start({program_}, PathWith(directory_));
    Act act = Tick();
    if (act.ok) act.done.push_back(absl::StrCat(program_, " has synced"));
    return act;
  }

  Act Tick() override {
    return kubelet_.RunUntil([this] { return HasCanaries(); }, kPatience,
                             "its canaries do not come back");
  }

  Act Settle() override { return {}; }
  Act SetConnLabels(bool /*on*/) override {
    return {.ok = false, .error = "no kubelet has the gate ConnLabelMarking"};
  }
  Act Stop() override {
    kubelet_.Kill();
    return {};
  }

 private:
  bool HasCanaries() const {
    return std::all_of(families_.begin(), families_.end(), [this](IpFamily family) {
      const std::string rules = settings_.iptables.Of(family).Save().out;
      return testing::CountOf(absl::StrCat(":", kCanary, " "), rules) == 3;
    });
  }

  const std::string program_;
  const KubeletSettings settings_;
  const testing::ScratchDirectory directory_;
  std::vector<IpFamily> families_;
  StoppedProgram kubelet_;
};

}  // namespace

std::unique_ptr<NodeAgent> NewProgramKubelet(const std::string& program,
                                             const KubeletSettings& settings) {
  return std::make_unique<ProgramKubelet>(program, settings);
}

}  // namespace kipt::skew
