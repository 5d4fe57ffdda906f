// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/rule_support.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/xtables/conn_label_names.h"

namespace kipt::agent {
namespace {

// Each module registers these functions, so every build has them.
constexpr ModuleQuery kModules[] = {{"nft_compat", "nft_match_select_ops"},
                                    {"xt_comment", "comment_mt"},
                                    {"xt_conntrack", "conntrack_mt_v3"},
                                    {"xt_mark", "mark_mt"}};
constexpr ModuleQuery kConnLabel[] = {{"xt_connlabel", "connlabel_mt"}};

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Whether `matches` holds for a line of the file; nothing if it cannot be read. Line by line,
// because kallsyms has 10 MB.
template <typename F>
std::optional<bool> AnyLine(const std::string& path, F matches) {
  // "e": close-on-exec.
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), fclose);
  if (file == nullptr) return std::nullopt;
  char* line = nullptr;
  size_t capacity = 0;
  bool found = false;
  for (ssize_t size; !found && (size = getline(&line, &capacity, file.get())) != -1;) {
    const absl::string_view read(line, static_cast<size_t>(size));
    found = matches(absl::StripSuffix(read, "\n"));
  }
  free(line);
  if (ferror(file.get()) != 0) return std::nullopt;
  return found;
}

// What each source shows about one module; nothing if it cannot be read.
struct ModuleEvidence {
  std::optional<bool> loaded = {};
  std::optional<bool> built_in = {};
  std::optional<bool> on_disk = {};
  std::string modules_dep = {};
};

// "kernel/net/netfilter/nf_tables.ko.xz: ...", "kernel/net/netfilter/nf_tables.ko".
std::optional<bool> InList(const KernelPaths& paths, absl::string_view list,
                           absl::string_view module, std::string* file = nullptr) {
  const std::string file_name = absl::StrCat("/", module, ".ko");
  for (const std::string& directory : paths.module_directories) {
    const std::string path = absl::StrCat(directory, "/", list);
    const std::optional<bool> found = AnyLine(path, [&](absl::string_view line) {
      // After the colon come the modules that this one needs.
      return line.find(file_name) < line.find(':');
    });
    if (!found) continue;
    if (file != nullptr) *file = path;
    return found;
  }
  return std::nullopt;
}

// "ffffffff81a2b3c0 t nf_tables_newtable", possibly with a compiler's suffix (".llvm.123"), but
// without a module's name.
bool IsSymbol(absl::string_view line, absl::string_view symbol) {
  line.remove_prefix(line.rfind(' ') + 1);
  return absl::ConsumePrefix(&line, symbol) &&
         (line.empty() || (line[0] == '.' && !absl::StrContains(line, '\t')));
}

// Those of `symbols` that are not in the kernel itself. Nothing if the file cannot be read or is
// empty, as systemd (ProtectKernelTunables=, InaccessiblePaths=) and container engines make it.
std::optional<std::set<absl::string_view>> MissingSymbols(const KernelPaths& paths,
                                                          std::set<absl::string_view> symbols) {
  bool hidden = true;
  const std::optional<bool> read = AnyLine(paths.proc + "/kallsyms", [&](absl::string_view line) {
    hidden = false;
    std::erase_if(symbols, [&](absl::string_view symbol) { return IsSymbol(line, symbol); });
    return symbols.empty();
  });
  if (!read || hidden) return std::nullopt;
  return symbols;
}

std::optional<bool> IsLoaded(const KernelPaths& paths, absl::string_view module) {
  if (Exists(absl::StrCat(paths.sys_module, "/", module))) return true;
  const std::string loaded_line = absl::StrCat(module, " ");
  return AnyLine(paths.proc + "/modules",
                 [&](absl::string_view line) { return absl::StartsWith(line, loaded_line); });
}

bool LoadsModules(const KernelPaths& paths) {
  const std::optional<bool> disabled = AnyLine(paths.proc + "/sys/kernel/modules_disabled",
                                               [](absl::string_view line) { return line == "1"; });
  const bool no_modules = !Exists(paths.proc + "/modules") && Exists(paths.proc + "/version");
  return !no_modules && !disabled.value_or(false);
}

// Reads the kernel's symbols only if nothing else decides, and once for all queries, because that
// takes some 40 ms.
std::vector<ModuleEvidence> FindModules(const KernelPaths& paths,
                                        absl::Span<const ModuleQuery> queries,
                                        KernelSymbols reading) {
  std::vector<ModuleEvidence> evidence;
  std::set<absl::string_view> symbols;
  for (const ModuleQuery& query : queries) {
    ModuleEvidence& module = evidence.emplace_back();
    module.loaded = IsLoaded(paths, query.module);
    if (module.loaded == true) continue;
    module.built_in = InList(paths, "modules.builtin", query.module);
    module.on_disk = InList(paths, "modules.dep", query.module, &module.modules_dep);
    if (!module.built_in && module.on_disk != true) symbols.insert(query.symbol);
  }
  if (symbols.empty() || reading == KernelSymbols::kSkip) return evidence;
  const auto missing = MissingSymbols(paths, symbols);
  for (size_t i = 0; missing && i < queries.size(); ++i) {
    const absl::string_view symbol = queries[i].symbol;
    if (symbols.contains(symbol)) evidence[i].built_in = !missing->contains(symbol);
  }
  return evidence;
}

ModuleReading Judge(absl::string_view module, const ModuleEvidence& evidence, bool loads_modules) {
  const auto reading = [](ModuleState state, const auto&... words) {
    return ModuleReading{.state = state, .reason = absl::StrCat(words...)};
  };
  const auto& [loaded, built_in, on_disk, modules_dep] = evidence;
  if (loaded == true) return reading(ModuleState::kPresent, module, " is loaded");
  if (built_in == true) return reading(ModuleState::kPresent, module, " is built in");
  if (!loads_modules && !built_in) {
    return reading(ModuleState::kUnknown, "whether ", module, " is built in cannot be read");
  }
  if (!loads_modules) {
    return reading(ModuleState::kMissing, module,
                   " is not built in, and this kernel loads no modules");
  }
  if (!on_disk) {
    return reading(ModuleState::kUnknown, module,
                   " is not known to be loaded, and no modules.dep shows whether it can be");
  }
  if (*on_disk) return reading(ModuleState::kLoadable, module, " is in ", modules_dep);
  if (!loaded || !built_in) {
    return reading(ModuleState::kUnknown, module, " is not in ", modules_dep,
                   ", and whether it is ", loaded ? "built in" : "loaded", " cannot be read");
  }
  return reading(ModuleState::kMissing, module, " is not loaded and not in ", modules_dep);
}

XtCompat CompatOf(ModuleState state) {
  if (state == ModuleState::kUnknown) return XtCompat::kUnknown;
  return state == ModuleState::kMissing ? XtCompat::kAbsent : XtCompat::kPresent;
}

std::vector<ModuleReading> JudgeEach(const KernelPaths& paths,
                                     absl::Span<const ModuleQuery> queries, KernelSymbols symbols) {
  const bool loads_modules = LoadsModules(paths);
  const std::vector<ModuleEvidence> evidence = FindModules(paths, queries, symbols);
  std::vector<ModuleReading> readings;
  for (size_t i = 0; i < queries.size(); ++i) {
    readings.push_back(Judge(queries[i].module, evidence[i], loads_modules));
  }
  return readings;
}

// The first that is absent decides; without one, the first that is unknown.
XtCompatReading JudgeAll(const KernelPaths& paths, absl::Span<const ModuleQuery> queries,
                         KernelSymbols symbols) {
  XtCompatReading worst = {.compat = XtCompat::kPresent};
  for (ModuleReading& module : JudgeEach(paths, queries, symbols)) {
    XtCompatReading reading = {CompatOf(module.state), std::move(module.reason)};
    if (reading.compat == XtCompat::kAbsent) return reading;
    if (worst.compat == XtCompat::kPresent) worst = std::move(reading);
  }
  return worst;
}

std::string WhatChanged(const RuleSupport& before, const RuleSupport& now) {
  if (!now.xt) return absl::StrCat("iptables can hold no rules here: ", now.reason);
  if (!before.xt) return "iptables can hold rules now";
  if (now.conn_labels) return "connection labels are available now";
  return absl::StrCat("connection labels are not available here: ", now.conn_labels_reason);
}

}  // namespace

KernelPaths SystemKernelPaths(absl::string_view host_root) {
  KernelPaths paths;
  utsname name = {};
  uname(&name);
  std::vector<std::string> roots = {""};
  if (!host_root.empty() && host_root != "/") roots.insert(roots.begin(), std::string(host_root));
  for (const std::string& root : roots) {
    for (const char* const place : {"/lib/modules/", "/usr/lib/modules/"}) {
      paths.module_directories.push_back(absl::StrCat(root, place, name.release));
    }
  }
  return paths;
}

std::vector<ModuleReading> ReadModules(const KernelPaths& paths,
                                       absl::Span<const ModuleQuery> queries) {
  return JudgeEach(paths, queries, KernelSymbols::kRead);
}

ModuleState FindModule(const KernelPaths& paths, absl::string_view module,
                       absl::string_view symbol) {
  const std::optional<bool> loaded = IsLoaded(paths, module);
  if (loaded == true) return ModuleState::kPresent;
  if (!LoadsModules(paths)) return ModuleState::kNothingToLoad;
  std::optional<bool> built_in = InList(paths, "modules.builtin", module);
  if (!built_in) {
    if (const auto missing = MissingSymbols(paths, {symbol})) built_in = missing->empty();
  }
  if (!built_in) return ModuleState::kUnknown;
  if (*built_in) return ModuleState::kPresent;
  // Both must deny it: the list may be another build's.
  const bool missing = loaded && InList(paths, "modules.dep", module) == false;
  return missing ? ModuleState::kMissing : ModuleState::kLoadable;
}

XtCompatReading ReadXtCompat(const KernelPaths& paths, KernelSymbols symbols) {
  XtCompatReading reading = JudgeAll(paths, kModules, symbols);
  if (reading.compat == XtCompat::kPresent) {
    reading.reason =
        "nft_compat, xt_comment, xt_conntrack and xt_mark are loaded, built in or loadable";
  }
  return reading;
}

XtCompatReading ReadConnLabelMatch(const KernelPaths& paths, const std::string& label_names_path,
                                   KernelSymbols symbols) {
  XtCompatReading reading = JudgeAll(paths, kConnLabel, symbols);
  if (reading.compat == XtCompat::kAbsent) return reading;
  std::string problem = ConnLabelNamesProblem(label_names_path);
  if (problem.empty()) return reading;
  return {.compat = XtCompat::kAbsent, .reason = std::move(problem)};
}

RuleSupport SupportSource::Now(netlink::BackendKind kind, bool labels_desired) {
  const XtCompatReading files = read_();
  XtCompatReading xt = files;
  if (xt.compat == XtCompat::kAbsent && disproved_) xt.compat = XtCompat::kUnknown;
  if (xt.compat == XtCompat::kUnknown && refused_) {
    xt = {.compat = XtCompat::kAbsent,
          .reason = "the kernel refused a rule of iptables-nft, because a match is missing"};
  }
  RuleSupport now;
  if (kind == netlink::BackendKind::kNft && xt.compat == XtCompat::kAbsent) {
    now = {.xt = false, .reason = xt.reason, .refused = refused_};
  }
  if (!labels_desired) conn_label_refusal_.reset();
  if (!labels_desired || !now.xt) return now;
  const XtCompatReading conn_label = read_conn_label_();
  if (conn_label.compat == XtCompat::kAbsent) {
    now.conn_labels = false;
    now.conn_labels_reason = conn_label.reason;
  }
  // All matches too: nft_compat may have been what was missing.
  if (conn_label_refusal_ && conn_label_refusal_->at != Readings(files, conn_label)) {
    conn_label_refusal_.reset();
  }
  return conn_label_refusal_ ? WithoutConnLabels(std::move(now), conn_label_refusal_->said) : now;
}

bool SupportSource::Read(netlink::BackendKind kind, bool labels_desired) {
  const RuleSupport before = known_;
  ReadAgain();
  if (!ReadOnce(kind, labels_desired)) return false;
  news_ = WhatChanged(before, known_);
  return true;
}

bool SupportSource::ReadOnce(netlink::BackendKind kind, bool labels_desired) {
  if (std::exchange(looked_, true)) return false;
  const RuleSupport before = std::exchange(known_, Now(kind, labels_desired));
  return known_ != before;
}

bool SupportSource::NoteConnLabelRefusal(netlink::BackendKind kind, absl::string_view refusal) {
  conn_label_refusal_ = {{read_(), read_conn_label_()}, std::string(refusal)};
  return Read(kind, /*labels_desired=*/true);
}

}  // namespace kipt::agent
