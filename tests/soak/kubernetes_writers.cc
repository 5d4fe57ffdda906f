// SPDX-License-Identifier: Apache-2.0
//
// Those who write kubelet's chains too, and those who use them.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/soak/writer.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::soak {
namespace {

using testing::IpFamily;
using testing::KubeletForm;

class Users : public Writer {
 public:
  std::string name() const override { return "users"; }
  absl::Duration pause() const override { return absl::Seconds(1); }
  bool Hurries(const Node& node) const override { return node.users_are_due; }

  std::string Act(Node& node, Random& /*random*/) override {
    if (!node.users_are_due) return "";
    const Shared foreign(node.foreign_gate);
    return PutUsersBack(node) ? "their rules stand again" : "";
  }
};

// Its first act on a fresh node, or behind somebody who took its rules away, is its start.
class KubeProxyWriter : public Writer {
 public:
  std::string name() const override { return "kube-proxy"; }
  absl::Duration pause() const override { return absl::Seconds(2); }
  bool Hurries(const Node& node) const override { return node.proxy_is_due; }

  std::string Act(Node& node, Random& random) override {
    const Shared foreign(node.foreign_gate);
    // From 1.27 on each sync empties KUBE-FIREWALL of IPv4, and writes only its own rule.
    const Announcement announcement(node.windows, Bit(kDrop4));
    if (!node.proxy) {
      proxy_.reset();
      node.proxy_is_due = false;
      return "";
    }
    const bool restarts = node.proxy_is_due || proxy_ == nullptr || Draw(random, 8) == 0;
    node.services = Draw(random, 2);
    const auto ipv4 = ServicesOf(node.services, IpFamily::kIpv4);
    const auto ipv6 = ServicesOf(node.services, IpFamily::kIpv6);
    if (restarts) proxy_ = NewProxy(node.Choice(), *node.proxy);
    const skew::Act act = restarts ? proxy_->Start(ipv4, ipv6) : proxy_->Sync(ipv4, ipv6);
    // One that failed (the lock was held) comes again as a whole.
    node.proxy_is_due = !act.ok;
    return absl::StrCat(proxy_->name(), restarts ? " starts" : " syncs", " ", act.error);
  }

 private:
  std::unique_ptr<skew::ServiceProxy> proxy_;
};

class KubeletWriter : public Writer {
 public:
  std::string name() const override { return "kubelet"; }
  absl::Duration pause() const override { return absl::Seconds(8); }

  std::string Act(Node& node, Random& random) override {
    const Shared settings(node.settings_gate);
    // One that has another bit than kube-proxy would double its rules, as real ones do.
    if (node.settings.bits.masquerade != testing::KubeletBits().masquerade) return "";
    KubeletForm form = Draw(random, 2) == 0 ? KubeletForm::k1_24 : KubeletForm::k1_27GateOff;
    if (node.settings.cleanup) form = KubeletForm::k1_27GateOn;
    std::string text = "its sequence";
    for (const IpFamily family : testing::kBothFamilies) {
      const testing::KubeletRun run = testing::RunKubelet(
          node.Of(family), testing::KubeletSequence(form, family, node.settings.bits));
      absl::StrAppend(&text, ", ", NameOf(family), ": ", run.chains_created + run.rules_added,
                      " made ", run.error);
    }
    return text;
  }
};

}  // namespace

bool PutUsersBack(Node& node) {
  node.users_are_due = false;
  if (PutUsers(node.Choice(), node.users).ok) return true;
  node.users_are_due = true;
  return false;
}

std::unique_ptr<Writer> NewUsers() { return std::make_unique<Users>(); }
std::unique_ptr<Writer> NewKubeProxyWriter() { return std::make_unique<KubeProxyWriter>(); }
std::unique_ptr<Writer> NewKubeletWriter() { return std::make_unique<KubeletWriter>(); }

}  // namespace kipt::soak
