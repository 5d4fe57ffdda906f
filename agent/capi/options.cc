// SPDX-License-Identifier: Apache-2.0
#include "agent/capi/options.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "featuregates/known_features.h"

namespace kipt::agent {
namespace {

// A larger struct than any release will have: its size was not set.
constexpr size_t kMostSize = 4096;
// More entries than there are gates, or than anyone has directories.
constexpr size_t kMostEntries = 1024;

absl::Status Wrong(absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", why));
}

// A copy of `given`, whose size may be another release's: what it lacks is zero, and what this
// release does not know must be.
template <typename Struct>
absl::StatusOr<Struct> Read(const Struct* given, absl::string_view name) {
  static_assert(std::is_trivially_copyable_v<Struct> && offsetof(Struct, size) == 0);
  Struct own = {};
  if (given == nullptr) return own;
  const size_t size = given->size;
  if (size < sizeof(size) || size > kMostSize || size % alignof(Struct) != 0) {
    return Wrong(absl::StrCat(name, ".size"),
                 absl::StrCat(size, " is no size of this struct; set it to sizeof"));
  }
  const char* const bytes = reinterpret_cast<const char*>(given);
  if (std::any_of(bytes + std::min(size, sizeof(Struct)), bytes + size,
                  [](char byte) { return byte != 0; })) {
    return Wrong(absl::StrCat(name, ".size"),
                 absl::StrCat("a field that this release of the library does not know is set; it "
                              "knows ",
                              sizeof(Struct), " of ", size, " bytes"));
  }
  std::memcpy(&own, given, std::min(size, sizeof(Struct)));
  return own;
}

// Reads the fields, and keeps the first error.
class Fields {
 public:
  bool Bool(absl::string_view field, int32_t value) {
    if (value != 0 && value != 1) Fail(field, absl::StrCat(value, " is neither 0 nor 1"));
    return value == 1;
  }
  template <typename T, size_t kCount>
  T OneOf(absl::string_view field, int32_t value, const std::array<T, kCount>& values) {
    if (value >= 0 && static_cast<size_t>(value) < kCount) {
      return values[static_cast<size_t>(value)];
    }
    Fail(field, absl::StrCat(value, " is none of its values"));
    return values[0];
  }
  void Milliseconds(absl::string_view field, int64_t value, absl::Duration& out) {
    // A duration that Go's text, which Config reads, can have.
    constexpr int64_t kMost = int64_t{1} << 40;
    if (value < 0 || value > kMost) return Fail(field, absl::StrCat(value, " is out of range"));
    if (value != 0) out = absl::Milliseconds(value);
  }
  // Whether `count` entries are at `entries`.
  template <typename T>
  bool Has(absl::string_view field, const T* entries, size_t count) {
    if (count > kMostEntries) Fail(field, absl::StrCat(count, " entries are too many"));
    if (count != 0 && entries == nullptr)
      Fail(field, absl::StrCat("NULL with ", count, " entries"));
    return status_.ok() && count != 0;
  }
  // The text of an entry.
  std::string Text(absl::string_view field, const char* text) {
    if (text == nullptr) Fail(field, "NULL");
    return text == nullptr ? std::string() : text;
  }
  void Fail(absl::string_view field, absl::string_view why) { status_.Update(Wrong(field, why)); }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

void ReadLists(const kube_iptables_agent_options& given, Fields& fields,
               NodeAgentOptions& options) {
  if (fields.Has("feature_gates", given.feature_gates, given.feature_gate_count)) {
    for (size_t i = 0; i < given.feature_gate_count; ++i) {
      const kube_iptables_agent_gate& gate = given.feature_gates[i];
      if (gate.reserved != 0) fields.Fail("feature_gates", "reserved is not 0");
      const std::string name = fields.Text("feature_gates", gate.name);
      const bool enabled = fields.Bool("feature_gates", gate.enabled);
      if (!options.feature_gates.emplace(name, enabled).second) {
        fields.Fail("feature_gates", absl::StrCat(name, " is there twice"));
      }
    }
  }
  if (fields.Has("cni_conf_dirs", given.cni_conf_dirs, given.cni_conf_dir_count)) {
    for (size_t i = 0; i < given.cni_conf_dir_count; ++i) {
      options.cni_conf_dirs.push_back(fields.Text("cni_conf_dirs", given.cni_conf_dirs[i]));
    }
  }
}

void ReadNumbers(const kube_iptables_agent_options& given, Fields& fields,
                 NodeAgentOptions& options) {
  fields.Milliseconds("sync_period_ms", given.sync_period_ms, options.sync_period);
  fields.Milliseconds("longest_retry_ms", given.longest_retry_ms, options.longest_retry);
  fields.Milliseconds("program_deadline_ms", given.program_deadline_ms, options.program_deadline);
  options.make_iptables_util_chains = !fields.Bool("no_util_chains", given.no_util_chains);
  constexpr int32_t kBoth = KUBE_IPTABLES_AGENT_IPV4 | KUBE_IPTABLES_AGENT_IPV6;
  if ((given.families & ~kBoth) != 0) {
    fields.Fail("families", absl::StrCat(given.families, " has unknown flags"));
  }
  if ((given.families & KUBE_IPTABLES_AGENT_IPV4) != 0) {
    options.families.push_back(netlink::Family::kIPv4);
  }
  if ((given.families & KUBE_IPTABLES_AGENT_IPV6) != 0) {
    options.families.push_back(netlink::Family::kIPv6);
  }
  using Mode = std::optional<IptablesMode>;
  options.iptables_mode =
      fields.OneOf("iptables_mode", given.iptables_mode,
                   std::array<Mode, 3>{std::nullopt, IptablesMode::kNft, IptablesMode::kLegacy});
  options.watch =
      fields.Bool("poll", given.poll) ? netlink::WatchMode::kPoll : netlink::WatchMode::kEvents;
  options.observe = fields.Bool("observe", given.observe);
  options.stale_chains = fields.Bool("retire_stale_chains", given.retire_stale_chains)
                             ? StaleChains::kRetire
                             : StaleChains::kKeep;
  options.hint_policy =
      fields.Bool("hint_always", given.hint_always) ? HintPolicy::kAlways : HintPolicy::kUsable;
  if (given.reserved != 0) fields.Fail("reserved", "is not 0");
}

}  // namespace

absl::StatusOr<NodeAgentOptions> OptionsFrom(const kube_iptables_agent_options* given) {
  const absl::StatusOr<kube_iptables_agent_options> own = Read(given, "options");
  if (!own.ok()) return own.status();
  NodeAgentOptions options;
  Fields fields;
  if (own->netns != nullptr) options.netns = own->netns;
  if (own->host_root != nullptr) options.host_root = own->host_root;
  if (own->emulated_version != nullptr) {
    absl::StatusOr<featuregates::Version> version =
        featuregates::ParseVersion(own->emulated_version);
    if (!version.ok()) return Wrong("emulated_version", version.status().message());
    options.emulated_version = *version;
  }
  if (own->bits != nullptr) options.bits = {own->bits->masquerade, own->bits->drop};
  if (own->labels != nullptr) options.labels = {own->labels->masquerade, own->labels->drop};
  ReadLists(*own, fields, options);
  ReadNumbers(*own, fields, options);
  if (!fields.status().ok()) return fields.status();
  return options;
}

absl::StatusOr<kube_iptables_agent_handlers> HandlersFrom(
    const kube_iptables_agent_handlers* given) {
  return Read(given, "handlers");
}

}  // namespace kipt::agent
