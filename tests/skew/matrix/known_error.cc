// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/known_error.h"

#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace kipt::skew {
namespace {

constexpr absl::string_view kIpv6 = "ipv6: ";

// The command that failed names the chain too: what counts is what came of it.
bool SaysChainIsMissing(absl::string_view error, const std::string& chain) {
  const size_t exit_code = error.find("exit code ");
  if (exit_code == absl::string_view::npos) return false;
  error.remove_prefix(exit_code);
  return absl::StrContains(error, absl::StrCat("Chain '", chain, "' does not exist")) ||
         absl::StrContains(error, absl::StrCat("Couldn't load target `", chain, "'"));
}

// In the restore of nat, or where the part for IPVS deletes that chain once more.
bool SaysChainIsBusy(absl::string_view error, const std::string& chain) {
  absl::ConsumePrefix(&error, "; ");
  for (const absl::string_view part : absl::StrSplit(error, "; ")) {
    if (absl::StrContains(part, absl::StrCat(": ipvs: -X ", chain, ": exit code "))) continue;
    const bool restore =
        absl::StrContains(part, "tables-restore: line ") && absl::EndsWith(part, " failed");
    if (!absl::StrContains(part, ": nat: exit code ")) return false;
    if (!restore &&
        !absl::EndsWith(part, absl::StrCat("(Device or resource busy): chain ", chain))) {
      return false;
    }
  }
  return true;
}

bool IsThat(const KnownError& known, absl::string_view error) {
  return known.busy_chain.empty() ? SaysChainIsMissing(error, known.missing_chain)
                                  : SaysChainIsBusy(error, known.busy_chain);
}

}  // namespace

bool Explains(const KnownError& known, const std::string& error) {
  // FamilyNotes: IPv4's stands first, and an error without a family is of IPv4's.
  const absl::string_view all = error;
  size_t ipv6 = absl::StartsWith(all, kIpv6) ? 0 : all.find(absl::StrCat("; ", kIpv6));
  if (ipv6 == absl::string_view::npos) ipv6 = all.size();
  const std::array<absl::string_view, 2> errors = {all.substr(0, ipv6), all.substr(ipv6)};
  for (size_t family = 0; family < errors.size(); ++family) {
    const bool failed = !errors[family].empty();
    if (failed && !known.families[family]) return false;
    if (!failed && known.families[family] && !known.may_succeed) return false;
    if (failed && !IsThat(known, errors[family])) return false;
  }
  return true;
}

}  // namespace kipt::skew
