// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/rule_support.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "agent/xtables/conn_label_names.h"

namespace kipt::agent {
namespace {

struct ModuleQuery {
  absl::string_view module;
  absl::string_view symbol;  // as for FindModule
};

// The functions are what each module registers, so every build of it has them.
constexpr std::array<ModuleQuery, 4> kModules = {{
    {"nft_compat", "nft_match_select_ops"},
    {"xt_comment", "comment_mt"},
    {"xt_conntrack", "conntrack_mt_v3"},
    {"xt_mark", "mark_mt"},
}};
constexpr ModuleQuery kConnLabel = {"xt_connlabel", "connlabel_mt"};

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
  // Nothing where there is no such list.
  std::optional<bool> found = {};
  std::string file = {};
};

// What each source says of one module; nothing where it cannot be read.
struct ModuleEvidence {
  std::optional<bool> loaded = {};
  std::optional<bool> built_in = {};
  ListAnswer on_disk = {};
};

// "kernel/net/netfilter/nf_tables.ko.xz: ...", "kernel/net/netfilter/nf_tables.ko".
ListAnswer InList(const KernelPaths& paths, absl::string_view list, absl::string_view module) {
  const std::string file_name = absl::StrCat("/", module, ".ko");
  for (const std::string& directory : paths.module_directories) {
    std::string file = absl::StrCat(directory, "/", list);
    const std::optional<bool> found = AnyLine(file, [&](absl::string_view line) {
      // Behind the colon come the modules that this one needs.
      return absl::StrContains(line.substr(0, line.find(':')), file_name);
    });
    if (found) return {.found = found, .file = std::move(file)};
  }
  return {};
}

// "ffffffff81a2b3c0 t nf_tables_newtable", after which a module's name would follow, or what a
// compiler that optimises whole programs appends (".llvm.123").
bool IsSymbol(absl::string_view line, absl::string_view symbol) {
  const size_t start = line.rfind(' ');
  if (start == absl::string_view::npos) return false;
  line.remove_prefix(start + 1);
  return absl::ConsumePrefix(&line, symbol) &&
         (line.empty() || (line[0] == '.' && !absl::StrContains(line, '\t')));
}

// Of each symbol, whether the kernel itself has it. Nothing where that cannot be read, or is
// hidden: systemd (ProtectKernelTunables=, InaccessiblePaths=) and container engines put an empty
// file there.
std::optional<std::vector<bool>> AreBuiltInSymbols(const KernelPaths& paths,
                                                   absl::Span<const absl::string_view> symbols) {
  std::vector<bool> found(symbols.size(), false);
  size_t missing = symbols.size();
  bool hidden = true;
  const std::optional<bool> read = AnyLine(paths.kallsyms, [&](absl::string_view line) {
    hidden = false;
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (found[i] || !IsSymbol(line, symbols[i])) continue;
      found[i] = true;
      --missing;
    }
    return missing == 0;
  });
  if (!read || hidden) return std::nullopt;
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

// What is loaded is not looked for further. The kernel's symbols are read once for all queries,
// which takes it some 40 ms, and only where nothing else tells.
std::vector<ModuleEvidence> LookForModules(const KernelPaths& paths,
                                           absl::Span<const ModuleQuery> queries) {
  std::vector<ModuleEvidence> evidence(queries.size());
  std::vector<absl::string_view> symbols;
  std::vector<size_t> of_symbols;
  for (size_t i = 0; i < queries.size(); ++i) {
    ModuleEvidence& module = evidence[i];
    module.loaded = IsLoaded(paths, queries[i].module);
    if (module.loaded.value_or(false)) continue;
    module.built_in = InList(paths, "modules.builtin", queries[i].module).found;
    module.on_disk = InList(paths, "modules.dep", queries[i].module);
    if (module.built_in || module.on_disk.found.value_or(false)) continue;
    symbols.push_back(queries[i].symbol);
    of_symbols.push_back(i);
  }
  if (symbols.empty()) return evidence;
  if (const auto built_in = AreBuiltInSymbols(paths, symbols)) {
    for (size_t i = 0; i < of_symbols.size(); ++i) {
      evidence[of_symbols[i]].built_in = (*built_in)[i];
    }
  }
  return evidence;
}

// Whether `module` can be had.
XtCompatReading Judge(absl::string_view module, const ModuleEvidence& evidence,
                      bool loads_modules) {
  const auto reading = [](XtCompat compat, const auto&... words) {
    return XtCompatReading{.compat = compat, .reason = absl::StrCat(words...)};
  };
  if (evidence.loaded.value_or(false)) {
    return reading(XtCompat::kPresent, module, " is loaded");
  }
  if (evidence.built_in.value_or(false)) {
    return reading(XtCompat::kPresent, module, " is built in");
  }
  if (!loads_modules && !evidence.built_in) {
    return reading(XtCompat::kUnknown, "whether ", module, " is built in cannot be read");
  }
  if (!loads_modules) {
    return reading(XtCompat::kAbsent, module, " is not built in, and this kernel loads no modules");
  }
  if (!evidence.on_disk.found) {
    return reading(XtCompat::kUnknown, module,
                   " is not known to be loaded, and there is no modules.dep to say whether it can "
                   "be");
  }
  if (*evidence.on_disk.found) {
    return reading(XtCompat::kPresent, module, " is in ", evidence.on_disk.file);
  }
  if (!evidence.loaded || !evidence.built_in) {
    return reading(XtCompat::kUnknown, module, " is not in ", evidence.on_disk.file,
                   ", and whether it is ", evidence.loaded ? "built in" : "loaded",
                   " cannot be read");
  }
  return reading(XtCompat::kAbsent, module, " is not loaded and not in ", evidence.on_disk.file);
}

// One that is missing decides; until it is found, the first that is unknown.
XtCompatReading JudgeAll(KernelPaths paths, absl::Span<const ModuleQuery> queries,
                         KernelSymbols symbols) {
  if (symbols == KernelSymbols::kSkip) paths.kallsyms.clear();
  const bool loads_modules = LoadsModules(paths);
  const std::vector<ModuleEvidence> evidence = LookForModules(paths, queries);
  XtCompatReading worst = {.compat = XtCompat::kPresent, .reason = {}};
  for (size_t i = 0; i < queries.size(); ++i) {
    XtCompatReading reading = Judge(queries[i].module, evidence[i], loads_modules);
    if (reading.compat == XtCompat::kAbsent) return reading;
    if (i == 0 || (reading.compat == XtCompat::kUnknown && worst.compat == XtCompat::kPresent)) {
      worst = std::move(reading);
    }
  }
  return worst;
}

std::string WhatChanged(const RuleSupport& before, const RuleSupport& now) {
  if (!now.xt) return absl::StrCat("iptables can hold no rules here: ", now.reason);
  if (!before.xt) return "iptables can hold rules now";
  if (now.conn_labels) return "connection labels can be had now";
  return absl::StrCat("connection labels cannot be had here: ", now.conn_labels_reason);
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
  std::optional<bool> built_in = InList(paths, "modules.builtin", module).found;
  if (!built_in) {
    if (const auto symbols = AreBuiltInSymbols(paths, {symbol})) built_in = symbols->front();
  }
  if (!built_in) return ModuleState::kUnknown;
  if (*built_in) return ModuleState::kPresent;
  // The kernel says that it has no module of that name; a list may be of another build.
  const bool missing = loaded && InList(paths, "modules.dep", module).found == false;
  return missing ? ModuleState::kMissing : ModuleState::kLoadable;
}

XtCompatReading ReadXtCompat(KernelPaths paths, KernelSymbols symbols) {
  XtCompatReading reading = JudgeAll(std::move(paths), kModules, symbols);
  if (reading.compat == XtCompat::kPresent) {
    reading.reason =
        "nft_compat, xt_comment, xt_conntrack and xt_mark are loaded, built in or loadable";
  }
  return reading;
}

XtCompatReading ReadConnLabelMatch(KernelPaths paths, const std::string& label_names_path,
                                   KernelSymbols symbols) {
  XtCompatReading reading = JudgeAll(std::move(paths), {&kConnLabel, 1}, symbols);
  if (reading.compat == XtCompat::kAbsent) return reading;
  std::string problem = ConnLabelNamesProblem(label_names_path);
  if (problem.empty()) return reading;
  return {.compat = XtCompat::kAbsent, .reason = std::move(problem)};
}

RuleSupport SupportSource::Now(netlink::BackendKind kind, bool labels_desired) {
  const XtCompatReading xt = read_();
  XtCompatReading reading = xt;
  if (reading.compat == XtCompat::kAbsent && disproved_) reading.compat = XtCompat::kUnknown;
  if (reading.compat == XtCompat::kUnknown && refused_) {
    reading = {.compat = XtCompat::kAbsent,
               .reason = "the kernel refused a rule of iptables-nft for want of a match"};
  }
  RuleSupport now;
  if (kind == netlink::BackendKind::kNft && reading.compat == XtCompat::kAbsent) {
    now = {.xt = false, .reason = reading.reason, .refused = refused_};
  }
  if (!labels_desired) conn_label_refusal_.reset();
  if (!labels_desired || !now.xt) return now;
  const XtCompatReading conn_label = read_conn_label_();
  // nft_compat may have been what was missing.
  if (conn_label_refusal_ && conn_label_refusal_->at != Readings{xt, conn_label}) {
    conn_label_refusal_.reset();
  }
  if (conn_label.compat == XtCompat::kAbsent) {
    now.conn_labels = false;
    now.conn_labels_reason = conn_label.reason;
  }
  return conn_label_refusal_ ? WithoutConnLabels(std::move(now), conn_label_refusal_->said) : now;
}

bool SupportSource::Look(netlink::BackendKind kind, bool labels_desired) {
  const RuleSupport before = known_;
  LookAnew();
  if (!LookOnce(kind, labels_desired)) return false;
  news_ = WhatChanged(before, known_);
  return true;
}

bool SupportSource::LookOnce(netlink::BackendKind kind, bool labels_desired) {
  if (std::exchange(looked_, true)) return false;
  const RuleSupport before = std::exchange(known_, Now(kind, labels_desired));
  return known_ != before;
}

bool SupportSource::NoteRefusal(netlink::BackendKind kind, bool labels_desired) {
  refused_ = true;
  return Look(kind, labels_desired);
}

bool SupportSource::NoteDisproof(netlink::BackendKind kind, bool labels_desired) {
  disproved_ = true;
  return Look(kind, labels_desired);
}

bool SupportSource::NoteConnLabelRefusal(netlink::BackendKind kind, absl::string_view refusal) {
  conn_label_refusal_ = {.at = {read_(), read_conn_label_()}, .said = std::string(refusal)};
  return Look(kind, /*labels_desired=*/true);
}

}  // namespace kipt::agent
