// SPDX-License-Identifier: Apache-2.0
#include "agent/config/load_config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/config/yaml_document.h"
#include "agent/process/files.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

constexpr absl::string_view kAgentApiVersion = "kube-iptables-agent/v1alpha1";
constexpr absl::string_view kAgentKind = "KubeIPTablesAgentConfiguration";
constexpr absl::string_view kKubeletGroup = "kubelet.config.k8s.io/";
constexpr absl::string_view kKubeletApiVersion = "kubelet.config.k8s.io/v1beta1";
constexpr absl::string_view kKubeletKind = "KubeletConfiguration";
constexpr std::array<absl::string_view, 2> kKindFields = {"apiVersion", "kind"};

std::string AcceptedKinds() {
  return absl::StrCat("accepted are kind ", kAgentKind, " of apiVersion ", kAgentApiVersion,
                      " and kind ", kKubeletKind, " of apiVersion ", kKubeletApiVersion);
}

// Reads the fields of a document of either kind.
class Decoder {
 public:
  Decoder(const YamlDocument& document, absl::string_view path) : document_(document) {
    file_.path = std::string(path);
  }

  absl::StatusOr<ConfigFile> Decode() {
    absl::Status first = CheckLapses(DecodeKind());
    for (const YamlEntry& entry : document_.root().entries) {
      if (first.ok()) first = DecodeField(entry.key, entry.value);
    }
    if (!first.ok()) return first;
    return std::move(file_);
  }

 private:
  absl::Status DecodeKind() {
    const YamlNode& root = document_.root();
    if (root.kind == YamlNode::Kind::kNull) {
      return document_.ErrorAt(
          root.line, absl::StrCat("the file holds no configuration; write apiVersion and kind (",
                                  AcceptedKinds(), "), or leave out --config"));
    }
    if (root.kind != YamlNode::Kind::kMap) {
      return document_.ErrorAt(
          root.line, absl::StrCat("the file must hold a map of fields; ", AcceptedKinds()));
    }
    std::array<std::string, 2> values;
    for (size_t i = 0; const absl::string_view field : kKindFields) {
      const YamlNode* const node = root.Find(field);
      if (node == nullptr) {
        return document_.ErrorAt(root.line, absl::StrCat(field, " is missing; ", AcceptedKinds()));
      }
      absl::StatusOr<std::string> value = document_.Text(*node, field, YamlType::kString);
      if (!value.ok()) return value.status();
      values[i++] = *std::move(value);
    }
    const auto& [api_version, kind] = values;
    if (api_version == kKubeletApiVersion && kind == kKubeletKind) {
      file_.kind = ConfigFile::Kind::kKubelet;
    } else if (api_version != kAgentApiVersion || kind != kAgentKind) {
      const bool other_version =
          kind == kKubeletKind && absl::StartsWith(api_version, kKubeletGroup);
      return document_.ErrorAt(
          root.Find("apiVersion")->line,
          absl::StrCat(other_version ? "this version of KubeletConfiguration is not known: "
                                     : "this kind of file is not known: ",
                       "apiVersion ", QuoteForMessage(api_version), ", kind ",
                       QuoteForMessage(kind), "; ", AcceptedKinds()));
    }
    return absl::OkStatus();
  }

  // kubelet accepts them all. A duplicate of a field that is read has no certain value.
  absl::Status CheckLapses(absl::Status kind) {
    std::vector<YamlLapse> accepted;
    for (const YamlLapse& lapse : document_.lapses()) {
      const bool read =
          SettingFor(lapse.field) != nullptr || absl::c_linear_search(kKindFields, lapse.field);
      if (!kind.ok() || !IsKubelets() || read) return document_.ErrorAt(lapse.line, lapse.message);
      if (lapse.kind != YamlLapse::Kind::kShared) accepted.push_back(lapse);
    }
    if (accepted.empty()) return kind;
    file_.warnings.push_back(absl::StrCat(
        document_.ErrorAt(accepted[0].line, accepted[0].message).message(),
        accepted.size() == 1 ? "" : absl::StrCat(" (and ", accepted.size() - 1, " more)"),
        "; accepted, because kubelet accepts it"));
    return kind;
  }

  // Null where this kind of file has no such field, or one that the agent does not read.
  const Setting* SettingFor(absl::string_view field) const {
    const auto setting =
        absl::c_find_if(kSettings, [field](const Setting& one) { return one.field == field; });
    const bool read =
        setting != kSettings.end() &&
        setting->file >= (IsKubelets() ? InFile::kAgentsAndKubelets : InFile::kAgents);
    return read ? &*setting : nullptr;
  }
  bool IsKubelets() const { return file_.kind == ConfigFile::Kind::kKubelet; }

  absl::Status DecodeField(const YamlNode& key, const YamlNode& value) {
    const Setting* const setting = SettingFor(key.text);
    if (setting == nullptr) {
      const bool skipped = IsKubelets() || absl::c_linear_search(kKindFields, key.text);
      return skipped ? absl::OkStatus() : UnknownField(key);
    }
    // Go's decoder leaves a field that is null unset.
    if (IsKubelets() && value.kind == YamlNode::Kind::kNull) return absl::OkStatus();
    file_.lines[setting->field] = value.line;
    if (setting->member == FlagMember(&Flags::feature_gates)) return DecodeGates(value);
    const YamlType type = setting->is_bool()         ? YamlType::kBool
                          : setting->type == "int32" ? YamlType::kInt32
                                                     : YamlType::kString;
    const absl::StatusOr<std::string> text = document_.Text(value, key.text, type);
    if (!text.ok()) return text.status();
    absl::Status status = ParseFlag(*setting, *text, file_.given);
    if (status.ok()) return status;
    // Only a duration can be wrong now.
    return document_.ErrorAt(
        value.line, absl::StrCat(key.text, ": ", status.message(), "; write it as 1m0s or 90s"));
  }

  absl::Status UnknownField(const YamlNode& key) const {
    std::string known = absl::StrJoin(kKindFields, ", ");
    for (const Setting& setting : kSettings) {
      if (setting.file != InFile::kNever) absl::StrAppend(&known, ", ", setting.field);
    }
    return document_.ErrorAt(key.line, absl::StrCat("unknown field ", QuoteForMessage(key.text),
                                                    "; ", kAgentKind, " has ", known));
  }

  absl::Status DecodeGates(const YamlNode& gates) {
    if (gates.kind != YamlNode::Kind::kMap) {
      return document_.ErrorAt(gates.line,
                               "featureGates: must be a map of names to true or false, as in "
                               "\"IPTablesOwnershipCleanup: false\" on a line of its own");
    }
    for (const auto& [name, enabled] : gates.entries) {
      const absl::StatusOr<std::string> value =
          document_.Text(enabled, absl::StrCat("featureGates.", name.text), YamlType::kBool);
      if (!value.ok()) return value.status();
      file_.feature_gates[name.text] = *value == "true";
    }
    return absl::OkStatus();
  }

  const YamlDocument& document_;
  ConfigFile file_;
};

absl::Status Unreadable(absl::string_view path, absl::string_view why, absl::string_view advice) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot read the configuration file ", path, ": ", why, "; ", advice));
}

absl::Status SystemError(absl::string_view path, int error) {
  return Unreadable(path, std::generic_category().message(error),
                    error == ENOENT   ? "create it, or give another path in --config"
                    : error == EACCES ? "let the agent's user read it and its directory"
                                      : "give the path of a readable file in --config");
}

// "user 1000". Empty if only root and this process's user can write the file or directory.
std::string OtherWriters(const struct stat& about) {
  // The sticky bit keeps users from replacing each other's files.
  const bool sticky = S_ISDIR(about.st_mode) && (about.st_mode & S_ISVTX) != 0;
  if (about.st_uid != 0 && about.st_uid != geteuid()) return absl::StrCat("user ", about.st_uid);
  if ((about.st_mode & S_IWOTH) != 0 && !sticky) return "every user";
  const bool by_group = (about.st_mode & S_IWGRP) != 0 && about.st_gid != 0 && !sticky;
  return by_group ? absl::StrCat("group ", about.st_gid) : "";
}

// Warns about other users that can write to the file at `path`, or else to its directory.
std::string WarningOfWriters(std::string path, struct stat about) {
  std::string writers = OtherWriters(about);
  if (writers.empty()) {
    const size_t slash = path.rfind('/');
    path = slash == std::string::npos ? "./" : path.substr(0, slash + 1);
    if (stat(path.c_str(), &about) == 0) writers = OtherWriters(about);
  }
  if (writers.empty()) return "";
  return absl::StrCat(path, " can be written by ", writers,
                      ", and so can change this node's rules: let only root write it");
}

}  // namespace

absl::StatusOr<ConfigFile> ParseConfigFile(absl::string_view path, absl::string_view text) {
  const absl::StatusOr<YamlDocument> document = YamlDocument::ParseLeniently(path, text);
  if (!document.ok()) return document.status();
  return Decoder(*document, path).Decode();
}

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path, bool may_be_missing) {
  if (path.empty() && !may_be_missing) {
    return absl::InvalidArgumentError(
        "--config is empty; give the path of a file, or leave the flag out");
  }
  // Without O_NONBLOCK a named pipe would block for ever.
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid() && errno == ENOENT && may_be_missing) return ConfigFile();
  struct stat about {};
  if (!fd.valid() || fstat(fd.get(), &about) != 0) return SystemError(path, errno);
  if (!S_ISREG(about.st_mode)) {
    return Unreadable(path,
                      S_ISDIR(about.st_mode) ? "it is a directory" : "it is not a regular file",
                      "give the path of a regular file in --config");
  }
  const absl::StatusOr<std::string> text = ReadToEnd(fd.get(), path, kMaxYamlBytes);
  if (absl::IsResourceExhausted(text.status())) {
    return Unreadable(path, absl::StrCat("it is larger than ", kMaxYamlBytes, " bytes"),
                      "is it the right file?");
  }
  if (!text.ok()) return SystemError(path, errno);
  absl::StatusOr<ConfigFile> file = ParseConfigFile(path, *text);
  if (!file.ok()) return file;
  std::string writers = WarningOfWriters(path, about);
  if (!writers.empty()) file->warnings.push_back(std::move(writers));
  return file;
}

absl::StatusOr<Config> LoadConfig(const Flags& flags, const ConfigSources& sources) {
  const absl::StatusOr<ConfigFile> file = ReadConfigFile(
      flags.config.value_or(sources.default_config_path), /*may_be_missing=*/!flags.config);
  if (!file.ok()) return file.status();
  return ResolveConfig(flags, *file, sources.if_inet6_path);
}

}  // namespace kipt::agent
