// SPDX-License-Identifier: Apache-2.0
#include "agent/config/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/config/go_duration.h"
#include "agent/config/yaml_document.h"
#include "agent/process/owned_fd.h"
#include "agent/process/read_file.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

constexpr absl::string_view kAgentApiVersion = "kube-iptables-agent/v1alpha1";
constexpr absl::string_view kAgentKind = "KubeIPTablesAgentConfiguration";
constexpr absl::string_view kKubeletGroup = "kubelet.config.k8s.io/";
constexpr absl::string_view kKubeletApiVersion = "kubelet.config.k8s.io/v1beta1";
constexpr absl::string_view kKubeletKind = "KubeletConfiguration";

std::string AcceptedKinds() {
  return absl::StrCat("accepted are kind ", kAgentKind, " of apiVersion ", kAgentApiVersion,
                      " and kind ", kKubeletKind, " of apiVersion ", kKubeletApiVersion);
}

// The fields that both kinds have read or skipped through. One object per parse.
class Decoder {
 public:
  Decoder(const YamlDocument& document, absl::string_view path) : document_(document) {
    file_.path = std::string(path);
  }

  absl::StatusOr<ConfigFile> Decode() {
    absl::Status status = DecodeKind();
    if (status.ok()) status = CheckWrittenOut();
    for (const YamlEntry& entry : document_.root().entries) {
      if (!status.ok()) return status;
      status = DecodeField(entry);
    }
    if (!status.ok()) return status;
    return std::move(file_);
  }

 private:
  using Read = absl::Status (Decoder::*)(const YamlEntry& entry);
  struct Field {
    absl::string_view name;
    bool in_kubelet_configuration;
    Read read;
  };
  static const std::array<Field, 19> kFields;

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
    constexpr std::array<absl::string_view, 2> kNames = {"apiVersion", "kind"};
    for (size_t i = 0; i < kNames.size(); ++i) {
      const YamlNode* node = root.Find(kNames[i]);
      if (node == nullptr) {
        return document_.ErrorAt(root.line,
                                 absl::StrCat(kNames[i], " is missing; ", AcceptedKinds()));
      }
      absl::StatusOr<std::string> value = document_.String(*node, kNames[i]);
      if (!value.ok()) return value.status();
      values[i] = *std::move(value);
    }
    return ChooseKind(values[0], values[1]);
  }

  absl::Status ChooseKind(const std::string& api_version, const std::string& kind) {
    const bool kubelet = api_version == kKubeletApiVersion && kind == kKubeletKind;
    if (kubelet || (api_version == kAgentApiVersion && kind == kAgentKind)) {
      file_.kind = kubelet ? ConfigFile::Kind::kKubelet : ConfigFile::Kind::kAgent;
      return absl::OkStatus();
    }
    const bool other_version = kind == kKubeletKind && absl::StartsWith(api_version, kKubeletGroup);
    return document_.ErrorAt(
        document_.root().Find("apiVersion")->line,
        absl::StrCat(other_version ? "this version of KubeletConfiguration is not known: "
                                   : "this kind of file is not known: ",
                     "apiVersion ", featuregates::QuoteForMessage(api_version), ", kind ",
                     featuregates::QuoteForMessage(kind), "; ", AcceptedKinds()));
  }

  // What is shared may be anywhere in a KubeletConfiguration except where the agent reads.
  absl::Status CheckWrittenOut() const {
    const YamlNode& root = document_.root();
    if (file_.kind == ConfigFile::Kind::kAgent || root.shared) {
      return document_.CheckWrittenOut(root);
    }
    for (const YamlEntry& entry : root.entries) {
      absl::Status status = document_.CheckKeyWrittenOut(entry);
      const bool read = std::any_of(kFields.begin(), kFields.end(), [&entry](const Field& field) {
        return field.in_kubelet_configuration && field.name == entry.key;
      });
      if (status.ok() && read) status = document_.CheckWrittenOut(entry.value);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status DecodeField(const YamlEntry& entry) {
    const bool kubelet = file_.kind == ConfigFile::Kind::kKubelet;
    for (const Field& field : kFields) {
      if (field.name != entry.key) continue;
      if (kubelet && !field.in_kubelet_configuration) return absl::OkStatus();
      // Go's decoder leaves a field that is null as it is.
      if (kubelet && entry.value.kind == YamlNode::Kind::kNull) return absl::OkStatus();
      return (this->*field.read)(entry);
    }
    if (kubelet) return absl::OkStatus();
    std::string known;
    for (const Field& field : kFields) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", field.name);
    }
    return document_.ErrorAt(
        entry.key_line, absl::StrCat("unknown field ", featuregates::QuoteForMessage(entry.key),
                                     "; ", kAgentKind, " has ", known));
  }

  template <typename T, typename U>
  static absl::Status Store(absl::StatusOr<T> value, const YamlEntry& entry,
                            std::optional<FromLine<U>>& field) {
    if (!value.ok()) return value.status();
    field = FromLine<U>{*std::move(value), entry.value.line};
    return absl::OkStatus();
  }

  // apiVersion and kind: read before.
  absl::Status Skip(const YamlEntry& /*entry*/) { return absl::OkStatus(); }
  absl::Status EmulatedVersion(const YamlEntry& entry) {
    return Store(document_.String(entry.value, entry.key), entry, file_.emulated_version);
  }
  absl::Status MakeChains(const YamlEntry& entry) {
    return Store(document_.Bool(entry.value, entry.key), entry, file_.make_iptables_util_chains);
  }
  absl::Status MasqueradeBit(const YamlEntry& entry) {
    return Store(document_.Int32(entry.value, entry.key), entry, file_.iptables_masquerade_bit);
  }
  absl::Status DropBit(const YamlEntry& entry) {
    return Store(document_.Int32(entry.value, entry.key), entry, file_.iptables_drop_bit);
  }
  absl::Status MasqueradeLabel(const YamlEntry& entry) {
    return Store(document_.Int32(entry.value, entry.key), entry, file_.iptables_masquerade_label);
  }
  absl::Status DropLabel(const YamlEntry& entry) {
    return Store(document_.Int32(entry.value, entry.key), entry, file_.iptables_drop_label);
  }
  absl::Status IpFamilies(const YamlEntry& entry) {
    return Store(document_.String(entry.value, entry.key), entry, file_.ip_families);
  }
  absl::Status IptablesModeText(const YamlEntry& entry) {
    return Store(document_.String(entry.value, entry.key), entry, file_.iptables_mode);
  }
  absl::Status SyncPeriod(const YamlEntry& entry) {
    const absl::StatusOr<std::string> text = document_.String(entry.value, entry.key);
    if (!text.ok()) return text.status();
    absl::StatusOr<absl::Duration> period = ParseGoDuration(*text);
    if (!period.ok()) {
      return document_.ErrorAt(
          entry.value.line,
          absl::StrCat(entry.key, ": ", period.status().message(), "; write it as 1m0s or 90s"));
    }
    return Store(std::move(period), entry, file_.iptables_sync_period);
  }
  absl::Status Watch(const YamlEntry& entry) {
    return Store(document_.String(entry.value, entry.key), entry, file_.watch);
  }
  absl::Status Observe(const YamlEntry& entry) {
    return Store(document_.Bool(entry.value, entry.key), entry, file_.observe);
  }
  absl::Status HealthzBindAddress(const YamlEntry& entry) {
    return Store(document_.String(entry.value, entry.key), entry, file_.healthz_bind_address);
  }
  absl::Status MetricsBindAddress(const YamlEntry& entry) {
    return Store(document_.String(entry.value, entry.key), entry, file_.metrics_bind_address);
  }
  absl::Status StaleChainsText(const YamlEntry& entry) {
    return Store(document_.String(entry.value, entry.key), entry, file_.stale_chains);
  }
  absl::Status HintPolicyText(const YamlEntry& entry) {
    return Store(document_.String(entry.value, entry.key), entry, file_.hint_policy);
  }
  absl::Status CniConfDir(const YamlEntry& entry) {
    return Store(document_.String(entry.value, entry.key), entry, file_.cni_conf_dir);
  }
  absl::Status FeatureGates(const YamlEntry& entry) {
    if (entry.value.kind != YamlNode::Kind::kMap) {
      return document_.ErrorAt(entry.value.line,
                               "featureGates: must be a map of names to true or false, as in "
                               "\"IPTablesOwnershipCleanup: false\" on a line of its own");
    }
    for (const YamlEntry& gate : entry.value.entries) {
      const absl::StatusOr<bool> value =
          document_.Bool(gate.value, absl::StrCat("featureGates.", gate.key));
      if (!value.ok()) return value.status();
      file_.feature_gates[gate.key] = *value;
    }
    return absl::OkStatus();
  }

  const YamlDocument& document_;
  ConfigFile file_;
};

constexpr std::array<Decoder::Field, 19> Decoder::kFields = {{
    {"apiVersion", false, &Decoder::Skip},
    {"kind", false, &Decoder::Skip},
    {"emulatedVersion", false, &Decoder::EmulatedVersion},
    {"featureGates", true, &Decoder::FeatureGates},
    {"makeIPTablesUtilChains", false, &Decoder::MakeChains},
    {"iptablesMasqueradeBit", true, &Decoder::MasqueradeBit},
    {"iptablesDropBit", true, &Decoder::DropBit},
    {"iptablesMasqueradeLabel", false, &Decoder::MasqueradeLabel},
    {"iptablesDropLabel", false, &Decoder::DropLabel},
    {"ipFamilies", false, &Decoder::IpFamilies},
    {"iptablesMode", false, &Decoder::IptablesModeText},
    {"iptablesSyncPeriod", false, &Decoder::SyncPeriod},
    {"watch", false, &Decoder::Watch},
    {"healthzBindAddress", false, &Decoder::HealthzBindAddress},
    {"metricsBindAddress", false, &Decoder::MetricsBindAddress},
    {"observe", false, &Decoder::Observe},
    {"staleChains", false, &Decoder::StaleChainsText},
    {"hintPolicy", false, &Decoder::HintPolicyText},
    {"cniConfDir", false, &Decoder::CniConfDir},
}};

absl::Status Unreadable(absl::string_view path, absl::string_view why, absl::string_view mend) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot read the configuration file ", path, ": ", why, "; ", mend));
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
  if ((about.st_mode & S_IWOTH) != 0 && !sticky) return "everybody";
  if ((about.st_mode & S_IWGRP) != 0 && about.st_gid != 0 && !sticky) {
    return absl::StrCat("group ", about.st_gid);
  }
  return "";
}

std::string WarningOfWriters(const std::string& path, const struct stat& file) {
  const size_t slash = path.rfind('/');
  const std::string directory(slash == std::string::npos ? "./" : path.substr(0, slash + 1));
  struct stat about {};
  const std::pair<std::string, std::string> writers[] = {
      {path, OtherWriters(file)},
      {directory, stat(directory.c_str(), &about) == 0 ? OtherWriters(about) : ""}};
  for (const auto& [name, who] : writers) {
    if (!who.empty()) {
      return absl::StrCat(name, " can be written by ", who,
                          ", who so decides over this node's rules: leave it to root");
    }
  }
  return "";
}

struct TextFile {
  std::string text;
  std::string writable;
};

// Nothing: the file does not exist.
absl::StatusOr<std::optional<TextFile>> ReadText(const std::string& path) {
  // Without O_NONBLOCK a named pipe would hold us up for ever.
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid() && errno == ENOENT) return std::nullopt;
  struct stat about {};
  if (!file.valid() || fstat(file.get(), &about) != 0) return SystemError(path, errno);
  if (!S_ISREG(about.st_mode)) {
    return Unreadable(path, S_ISDIR(about.st_mode) ? "it is a directory" : "it is no regular file",
                      "give the path of a regular file in --config");
  }
  absl::StatusOr<std::string> text = ReadToEnd(file.get(), path, kMaxYamlBytes);
  if (absl::IsResourceExhausted(text.status())) {
    return Unreadable(path, absl::StrCat("it is larger than ", kMaxYamlBytes, " bytes"),
                      "is it the right file?");
  }
  if (!text.ok()) return SystemError(path, errno);
  return TextFile{.text = *std::move(text), .writable = WarningOfWriters(path, about)};
}

}  // namespace

absl::StatusOr<ConfigFile> ParseConfigFile(absl::string_view path, absl::string_view text) {
  const absl::StatusOr<YamlDocument> document = YamlDocument::Parse(path, text);
  if (!document.ok()) return document.status();
  return Decoder(*document, path).Decode();
}

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        "--config is empty; give the path of a file, or leave the flag out");
  }
  absl::StatusOr<std::optional<ConfigFile>> file = ReadConfigFileIfPresent(path);
  if (!file.ok()) return file.status();
  if (!file->has_value()) return SystemError(path, ENOENT);
  return **std::move(file);
}

absl::StatusOr<std::optional<ConfigFile>> ReadConfigFileIfPresent(const std::string& path) {
  absl::StatusOr<std::optional<TextFile>> read = ReadText(path);
  if (!read.ok()) return read.status();
  if (!read->has_value()) return std::nullopt;
  absl::StatusOr<ConfigFile> file = ParseConfigFile(path, (*read)->text);
  if (!file.ok()) return file.status();
  file->writable = std::move((*read)->writable);
  return *std::move(file);
}

}  // namespace kipt::agent
