// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/kernel_modules.h
//
// What the running kernel has of one of its modules, by reading files only. The first request to a
// part of netfilter that is not there makes the kernel run modprobe, in the host's namespaces and
// whoever asks; so this is looked at first.
#ifndef KIPT_AGENT_DETECT_KERNEL_MODULES_H_
#define KIPT_AGENT_DETECT_KERNEL_MODULES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kipt::agent {

enum class ModuleState : uint8_t {
  // Loaded, or built in.
  kPresent,
  // Built in or not there at all: this kernel loads no modules (any more), so asking is harmless.
  kNothingToLoad,
  // Not loaded. It is on disk, or nobody knows whether it is.
  kLoadable,
  // Not loaded, and not among the modules of this kernel.
  kMissing,
  // It may be built in, or not loaded: neither modules.builtin nor the kernel's symbols can be
  // read.
  kUnknown,
};

struct KernelPaths {
  // Lists what is loaded. A kernel without loadable modules has no such file.
  std::string proc_modules = "/proc/modules";
  // Exists where proc(5) is mounted at all.
  std::string proc_version = "/proc/version";
  // "1" where no module can be loaded any more.
  std::string modules_disabled = "/proc/sys/kernel/modules_disabled";
  // Has a directory for each module that is loaded, and for some that are built in.
  std::string sys_module = "/sys/module";
  // Symbols of modules end in "[MODULE]"; the others are built in.
  std::string kallsyms = "/proc/kallsyms";
  // Directories with modules.builtin and modules.dep of the running kernel (depmod(8)); the first
  // that has a file counts.
  std::vector<std::string> module_directories;
};

// The machine's, with the module directories under `host_root` before this process's own.
KernelPaths SystemKernelPaths(absl::string_view host_root);

// `symbol` is a function of the module that every build of it has, such as "nf_tables_newtable":
// where there is no modules.builtin, as in most containers, it tells whether the module is built
// in.
ModuleState FindModule(const KernelPaths& paths, absl::string_view module,
                       absl::string_view symbol);

struct ModuleQuery {
  absl::string_view module;
  absl::string_view symbol;  // as for FindModule
};

// What each source says of one module; nothing where it cannot be read.
struct ModuleEvidence {
  std::optional<bool> loaded;
  std::optional<bool> built_in;
  // In modules.dep, which is `list`.
  std::optional<bool> on_disk;
  std::string list;
};

struct ModulesEvidence {
  // False: this kernel loads no modules, or none any more.
  bool loads_modules = true;
  // In the order of the queries.
  std::vector<ModuleEvidence> modules;
};

// The sources themselves, for those to whom "nobody knows" is another answer than "it may be
// loaded". What is loaded is not looked for further. The kernel's symbols are read once for all
// queries, which takes it some 40 ms, and only where nothing else tells.
ModulesEvidence LookForModules(const KernelPaths& paths, absl::Span<const ModuleQuery> queries);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_KERNEL_MODULES_H_
