// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/kernel_modules.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace kipt::agent {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Whether a line for which `matches` holds is in the file; nothing where it cannot be read. Line by
// line: kallsyms is 10 MB.
template <typename F>
std::optional<bool> AnyLine(const std::string& path, F matches) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string line;
  bool found = false;
  while (!found && std::getline(file, line)) found = matches(absl::string_view(line));
  if (file.bad()) return std::nullopt;
  return found;
}

// "kernel/net/netfilter/nf_tables.ko.xz: ...", "kernel/net/netfilter/nf_tables.ko".
std::optional<bool> InList(const KernelPaths& paths, absl::string_view list,
                           absl::string_view module) {
  const std::string file_name = absl::StrCat("/", module, ".ko");
  for (const std::string& directory : paths.module_directories) {
    const std::optional<bool> found =
        AnyLine(absl::StrCat(directory, "/", list), [&](absl::string_view line) {
          // Behind the colon come the modules that this one needs.
          return absl::StrContains(line.substr(0, line.find(':')), file_name);
        });
    if (found) return found;
  }
  return std::nullopt;
}

// "ffffffff81a2b3c0 t nf_tables_newtable", behind which a module's name would stand.
std::optional<bool> IsBuiltInSymbol(const KernelPaths& paths, absl::string_view symbol) {
  const std::string end = absl::StrCat(" ", symbol);
  return AnyLine(paths.kallsyms, [&](absl::string_view line) { return absl::EndsWith(line, end); });
}

}  // namespace

KernelPaths SystemKernelPaths(absl::string_view host_root) {
  KernelPaths paths;
  utsname name = {};
  if (uname(&name) != 0) return paths;
  std::vector<std::string> roots = {""};
  if (!host_root.empty() && host_root != "/") roots.insert(roots.begin(), std::string(host_root));
  for (const std::string& root : roots) {
    for (const char* const place : {"/lib/modules/", "/usr/lib/modules/"}) {
      paths.module_directories.push_back(absl::StrCat(root, place, name.release));
    }
  }
  return paths;
}

ModuleState FindModule(const KernelPaths& paths, absl::string_view module,
                       absl::string_view symbol) {
  const std::string loaded_line = absl::StrCat(module, " ");
  const std::optional<bool> loaded = AnyLine(paths.proc_modules, [&](absl::string_view line) {
    return absl::StartsWith(line, loaded_line);
  });
  if (loaded.value_or(false) || Exists(absl::StrCat(paths.sys_module, "/", module))) {
    return ModuleState::kPresent;
  }
  const std::optional<bool> disabled =
      AnyLine(paths.modules_disabled, [](absl::string_view line) { return line == "1"; });
  const bool no_modules = !Exists(paths.proc_modules) && Exists(paths.proc_version);
  if (no_modules || disabled.value_or(false)) return ModuleState::kNothingToLoad;

  std::optional<bool> built_in = InList(paths, "modules.builtin", module);
  if (!built_in) built_in = IsBuiltInSymbol(paths, symbol);
  if (!built_in) return ModuleState::kUnknown;
  if (*built_in) return ModuleState::kPresent;
  // The kernel says that it has no module of that name; a list may be of another build.
  return loaded && !InList(paths, "modules.dep", module).value_or(true) ? ModuleState::kMissing
                                                                        : ModuleState::kLoadable;
}

}  // namespace kipt::agent
