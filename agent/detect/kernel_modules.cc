// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/kernel_modules.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace kipt::agent {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Whether a line for which `matches` holds is in the file; nothing where it cannot be read. Line by
// line: kallsyms is 10 MB.
template <typename F>
std::optional<bool> AnyLine(const std::string& path, F matches) {
  // "e": close-on-exec.
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), fclose);
  if (file == nullptr) return std::nullopt;
  char* line = nullptr;
  size_t capacity = 0;
  bool found = false;
  for (ssize_t size; !found && (size = getline(&line, &capacity, file.get())) > 0;) {
    const absl::string_view read(line, static_cast<size_t>(size));
    found = matches(absl::StripSuffix(read, "\n"));
  }
  free(line);
  if (!found && ferror(file.get()) != 0) return std::nullopt;
  return found;
}

struct ListAnswer {
  bool found = false;
  std::string file;
};

// "kernel/net/netfilter/nf_tables.ko.xz: ...", "kernel/net/netfilter/nf_tables.ko". Nothing where
// there is no such list.
std::optional<ListAnswer> InList(const KernelPaths& paths, absl::string_view list,
                                 absl::string_view module) {
  const std::string file_name = absl::StrCat("/", module, ".ko");
  for (const std::string& directory : paths.module_directories) {
    std::string file = absl::StrCat(directory, "/", list);
    const std::optional<bool> found = AnyLine(file, [&](absl::string_view line) {
      // Behind the colon come the modules that this one needs.
      return absl::StrContains(line.substr(0, line.find(':')), file_name);
    });
    if (found) return ListAnswer{.found = *found, .file = std::move(file)};
  }
  return std::nullopt;
}

// "ffffffff81a2b3c0 t nf_tables_newtable", behind which a module's name would stand, or what a
// compiler that optimises whole programs appends (".llvm.123").
bool IsSymbol(absl::string_view line, absl::string_view symbol) {
  const size_t start = line.rfind(' ');
  if (start == absl::string_view::npos) return false;
  line.remove_prefix(start + 1);
  return absl::ConsumePrefix(&line, symbol) &&
         (line.empty() || (line[0] == '.' && !absl::StrContains(line, '\t')));
}

// Of each symbol, whether the kernel itself has it. Nothing where that cannot be read.
std::optional<std::vector<bool>> AreBuiltInSymbols(const KernelPaths& paths,
                                                   absl::Span<const absl::string_view> symbols) {
  std::vector<bool> found(symbols.size(), false);
  size_t missing = symbols.size();
  const std::optional<bool> read = AnyLine(paths.kallsyms, [&](absl::string_view line) {
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (found[i] || !IsSymbol(line, symbols[i])) continue;
      found[i] = true;
      --missing;
    }
    return missing == 0;
  });
  if (!read) return std::nullopt;
  return found;
}

std::optional<bool> IsLoaded(const KernelPaths& paths, absl::string_view module) {
  if (Exists(absl::StrCat(paths.sys_module, "/", module))) return true;
  const std::string loaded_line = absl::StrCat(module, " ");
  return AnyLine(paths.proc_modules,
                 [&](absl::string_view line) { return absl::StartsWith(line, loaded_line); });
}

bool LoadsModules(const KernelPaths& paths) {
  const std::optional<bool> disabled =
      AnyLine(paths.modules_disabled, [](absl::string_view line) { return line == "1"; });
  const bool no_modules = !Exists(paths.proc_modules) && Exists(paths.proc_version);
  return !no_modules && !disabled.value_or(false);
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
  const std::optional<bool> loaded = IsLoaded(paths, module);
  if (loaded.value_or(false)) return ModuleState::kPresent;
  if (!LoadsModules(paths)) return ModuleState::kNothingToLoad;

  const std::optional<ListAnswer> listed = InList(paths, "modules.builtin", module);
  std::optional<bool> built_in;
  if (listed) {
    built_in = listed->found;
  } else if (const auto symbols = AreBuiltInSymbols(paths, {symbol})) {
    built_in = symbols->front();
  }
  if (!built_in) return ModuleState::kUnknown;
  if (*built_in) return ModuleState::kPresent;
  // The kernel says that it has no module of that name; a list may be of another build.
  const std::optional<ListAnswer> on_disk = InList(paths, "modules.dep", module);
  return loaded && on_disk && !on_disk->found ? ModuleState::kMissing : ModuleState::kLoadable;
}

ModulesEvidence LookForModules(const KernelPaths& paths, absl::Span<const ModuleQuery> queries) {
  ModulesEvidence evidence = {.loads_modules = LoadsModules(paths), .modules = {}};
  std::vector<absl::string_view> symbols;
  std::vector<size_t> of_symbols;
  for (const ModuleQuery& query : queries) {
    ModuleEvidence& module = evidence.modules.emplace_back();
    module.loaded = IsLoaded(paths, query.module);
    if (module.loaded.value_or(false)) continue;
    if (const std::optional<ListAnswer> listed = InList(paths, "modules.builtin", query.module)) {
      module.built_in = listed->found;
    }
    if (std::optional<ListAnswer> listed = InList(paths, "modules.dep", query.module)) {
      module.on_disk = listed->found;
      module.list = std::move(listed->file);
    }
    if (module.built_in || module.on_disk.value_or(false)) continue;
    symbols.push_back(query.symbol);
    of_symbols.push_back(evidence.modules.size() - 1);
  }
  if (symbols.empty()) return evidence;
  if (const auto built_in = AreBuiltInSymbols(paths, symbols)) {
    for (size_t i = 0; i < of_symbols.size(); ++i) {
      evidence.modules[of_symbols[i]].built_in = (*built_in)[i];
    }
  }
  return evidence;
}

}  // namespace kipt::agent
