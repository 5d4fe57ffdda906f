// SPDX-License-Identifier: Apache-2.0
//
// Prints the settings of the agent as a table in Markdown, for deploy/reference.md.
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "agent/config/settings.h"

namespace kipt::agent {
namespace {

std::string Code(absl::string_view text) {
  return text.empty() ? "" : absl::StrCat("`", text, "`");
}

// A process that is running takes up only what a file can change.
absl::string_view Reload(const Setting& setting) {
  if (setting.file == InFile::kNever) return "";
  return setting.fixed ? "restart" : "reload";
}

void PrintSettings(std::ostream& out) {
  out << "| Flag | Field | Type | Default | Meaning | Change |\n|---|---|---|---|---|---|\n";
  for (const Setting* setting : SettingsByFlag()) {
    const absl::string_view field = setting->file == InFile::kNever ? "" : setting->field;
    out << "| " << Code(absl::StrCat("--", setting->flag)) << " | " << Code(field) << " | "
        << (setting->is_bool() ? "bool" : setting->type) << " | "
        << Code(FlagText(*setting, Flags())) << " | "
        << absl::StrReplaceAll(setting->help, {{"|", "\\|"}}) << " | " << Reload(*setting)
        << " |\n";
  }
}

}  // namespace
}  // namespace kipt::agent

int main() { kipt::agent::PrintSettings(std::cout); }
