// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/kubelet_forms.h
//
// What a rule that stands in one of kubelet's chains is: a form that some kubelet, since 1.17,
// writes there, be it with another mark bit, or somebody else's. Pure.
#ifndef KIPT_AGENT_POLICY_KUBELET_FORMS_H_
#define KIPT_AGENT_POLICY_KUBELET_FORMS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

struct KubeletForm {
  // "mark bit 20", "kubelet before 1.19": what tells it from other forms. Never empty.
  std::string description;
  // The mark bit that it sets or tests; none for rules that use no mark.
  std::optional<int> bit;
  // The label of the connection that it sets or tests; no one but this agent writes such rules.
  std::optional<int> label;
  bool shared_with_kube_proxy = false;
};

// Recognizes `rule` of `chain` as a form that kubelet, since 1.17, has written there with some mark
// bit, or this agent with some label. None: it is somebody else's.
std::optional<KubeletForm> RecognizeKubeletForm(const netlink::ChainId& chain,
                                                const netlink::Rule& rule);

// Whether `comment` is one that kubelet puts on a rule of `chain`.
bool IsKubeletComment(const netlink::ChainId& chain, absl::string_view comment);

// Whether the rules of `chain`, read from the top, hold a whole working set of some form for one
// mark bit: then the chain does its work, be it in another form than ours. Returns that bit.
// Only KUBE-MARK-MASQ and KUBE-POSTROUTING can; kube-proxy writes no others with a bit.
std::optional<int> CompleteSetBit(const netlink::ChainId& chain,
                                  absl::Span<const netlink::ObservedRule> rules);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_KUBELET_FORMS_H_
