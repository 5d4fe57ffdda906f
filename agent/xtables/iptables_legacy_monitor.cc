// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/xtables/iptables_legacy_parts.h"

// Need struct in6_addr to be the C library's, and so come after it.
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "agent/process/files.h"
#include "agent/process/network_namespaces.h"
#include "netlink/kernel_error.h"

namespace kipt::agent {
namespace {

using netlink::Family;
using netlink::FamilyName;
using netlink::KernelError;
using netlink::RulesetChanges;
using netlink::Table;
using netlink::TableName;

// Five tables a family; extensions may bring more.
constexpr size_t kMostNamesBytes = 64 << 10;
// A table that is rewritten this often meanwhile is one that changed.
constexpr int kMostAttempts = 5;

// The two families differ in the level and in the size of an entry; IPT_SO_* and IP6T_SO_*, struct
// ipt_get* and struct ip6t_get* are the same.
static_assert(sizeof(ipt_getinfo) == sizeof(ip6t_getinfo));
static_assert(sizeof(ipt_get_entries) == sizeof(ip6t_get_entries));

int LevelOf(Family family) { return family == Family::kIPv4 ? SOL_IP : SOL_IPV6; }

// Zeroes the counters of the entry that `entries` begins with and returns its size, or 0 where no
// whole entry is there.
template <typename Entry>
size_t TakeEntry(char* entries, size_t size) {
  Entry entry;
  if (size < sizeof entry) return 0;
  std::memcpy(&entry, entries, sizeof entry);
  if (entry.next_offset < sizeof entry || entry.next_offset > size) return 0;
  std::memset(entries + offsetof(Entry, counters), 0, sizeof entry.counters);
  return entry.next_offset;
}

std::string ActionOf(absl::string_view what, Family family, Table table) {
  return absl::StrCat("reading the ", what, " of iptables-legacy ", FamilyName(family), " ",
                      TableName(table));
}

absl::StatusOr<ipt_getinfo> GetInfo(int socket, Family family, Table table) {
  ipt_getinfo asked = {};
  const absl::string_view name = TableName(table);
  name.copy(asked.name, sizeof asked.name - 1);
  ipt_getinfo info = asked;
  socklen_t length = sizeof info;
  if (getsockopt(socket, LevelOf(family), IPT_SO_GET_INFO, &info, &length) != 0) {
    return KernelError(errno, ActionOf("layout", family, table));
  }
  // Kernels have written the name's end only, and what was on their stack after it.
  std::memcpy(info.name, asked.name, sizeof info.name);
  return info;
}

// Empty: the table has no longer the size that `info` says.
absl::StatusOr<std::optional<std::string>> GetEntries(int socket, Family family, Table table,
                                                      const ipt_getinfo& info) {
  ipt_get_entries head = {};
  std::memcpy(head.name, info.name, sizeof head.name);
  head.size = info.size;
  std::string buffer(sizeof head + info.size, '\0');
  std::memcpy(buffer.data(), &head, sizeof head);
  auto length = static_cast<socklen_t>(buffer.size());
  if (getsockopt(socket, LevelOf(family), IPT_SO_GET_ENTRIES, buffer.data(), &length) != 0) {
    if (errno == EAGAIN) return std::nullopt;
    return KernelError(errno, ActionOf("rules", family, table));
  }
  return buffer.substr(sizeof head);
}

absl::StatusOr<OwnedFd> OpenSocket(Family family) {
  OwnedFd fd(
      socket(family == Family::kIPv4 ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  if (fd.valid() || (errno == EAFNOSUPPORT && family == Family::kIPv6)) return fd;
  return KernelError(
      errno, absl::StrCat("opening a raw socket to ask for iptables-legacy ", FamilyName(family)),
      "CAP_NET_RAW is needed in the user namespace of the network namespace");
}

class TableReader {
 public:
  absl::Status Open(const std::string& table_names_path) {
    for (const Family family : netlink::kFamilies) {
      absl::StatusOr<OwnedFd> socket = OpenSocket(family);
      if (!socket.ok()) return socket.status();
      if (!socket->valid()) continue;
      Source& source = sources_[family];
      source.socket = *std::move(socket);
      source.names_path = PathOfFamily(table_names_path, family);
      if (absl::Status status = OpenNames(source); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<IptablesLegacyTables> Read() {
    IptablesLegacyTables tables;
    for (auto& [family, source] : sources_) {
      const absl::StatusOr<std::set<std::string>> names = Names(source);
      if (!names.ok()) return names.status();
      for (const Table table : netlink::kTables) {
        if (names->count(std::string(TableName(table))) == 0) continue;
        absl::StatusOr<IptablesLegacyTable> read = ReadTable(family, table, source);
        // Gone since it was listed, with its module.
        if (absl::IsNotFound(read.status())) continue;
        if (!read.ok()) return read.status();
        tables.emplace(std::make_pair(family, table), *std::move(read));
      }
    }
    return tables;
  }

 private:
  struct Source {
    OwnedFd socket = {};
    OwnedFd names = {};  // none: the kernel has no iptables-legacy tables of this family yet
    std::string names_path = {};
  };

  // The list is that of the namespace of the thread that opens it; read later, it stays that one's.
  absl::Status OpenNames(Source& source) const {
    OwnedFd names(open(source.names_path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!names.valid()) {
      // No file: no module, and no table.
      if (errno == ENOENT) return absl::OkStatus();
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", source.names_path,
                                                     ", which only uid 0 of the namespace may"));
    }
    if (absl::Status status = netns_.Check(); !status.ok()) return status;
    source.names = std::move(names);
    return absl::OkStatus();
  }

  absl::StatusOr<std::set<std::string>> Names(Source& source) const {
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (!source.names.valid()) {
        if (absl::Status status = OpenNames(source); !status.ok()) return status;
        if (!source.names.valid()) return std::set<std::string>();
      }
      if (lseek(source.names.get(), 0, SEEK_SET) == 0) {
        const absl::StatusOr<std::string> text =
            ReadToEnd(source.names.get(), source.names_path, kMostNamesBytes);
        if (text.ok()) return std::set<std::string>(absl::StrSplit(*text, '\n', absl::SkipEmpty()));
      }
      // The module was removed, and with it this file; it may have come back.
      source.names = OwnedFd();
    }
    return absl::UnavailableError(absl::StrCat("cannot read ", source.names_path));
  }

  absl::StatusOr<IptablesLegacyTable> ReadTable(Family family, Table table,
                                                const Source& source) const {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      const absl::StatusOr<ipt_getinfo> info = GetInfo(source.socket.get(), family, table);
      if (!info.ok()) return info.status();
      IptablesLegacyTable read = {
          .layout = std::string(reinterpret_cast<const char*>(&*info), sizeof *info)};
      if (info->size > kMostIptablesLegacyTableBytes) return read;
      absl::StatusOr<std::optional<std::string>> entries =
          GetEntries(source.socket.get(), family, table, *info);
      if (!entries.ok()) return entries.status();
      if (!entries->has_value()) continue;
      const absl::StatusOr<Fingerprint> content =
          FingerprintEntries(family, key_, **std::move(entries));
      if (!content.ok()) return content.status();
      read.content = *content;
      return read;
    }
    return absl::AbortedError(
        absl::StrCat(ActionOf("rules", family, table), ": it was rewritten all the while"));
  }

  NetnsGuard netns_;
  FingerprintKey key_ = RandomFingerprintKey();
  std::map<Family, Source> sources_;  // of the families that the kernel has
};

// Whoever changed something closes the lock when it is done. Programs open it for reading only.
constexpr uint32_t kFileEvents = IN_CLOSE_NOWRITE | IN_CLOSE_WRITE;
// A lock file that was removed is made anew by the next one who wants it. Nothing else that happens
// in the directory is of interest: /run is a busy place, and its closes would wake us for nothing.
constexpr uint32_t kDirectoryEvents =
    IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

// Files that were at the path before and are still there under no name or another: those who opened
// one of them before may still be at work.
constexpr size_t kMostFiles = 4;

class IptablesLegacyMonitor : public netlink::Monitor {
 public:
  IptablesLegacyMonitor(const std::string& lock_path, Inotify inotify,
                        IptablesLegacyTableReader read)
      : lock_path_(lock_path),
        directory_path_(std::filesystem::path(lock_path).parent_path().string()),
        lock_name_(std::filesystem::path(lock_path).filename().string()),
        inotify_(std::move(inotify)),
        read_(std::move(read)) {
    if (directory_path_.empty()) directory_path_.assign(1, '.');
  }

  absl::Status Start() {
    if (absl::Status status = Arm(); !status.ok()) return status;
    return Look().status();
  }

  int fd() const override { return inotify_.fd(); }

  absl::StatusOr<RulesetChanges> Drain() override {
    RulesetChanges changes;
    bool used = false;
    const absl::Status taken = inotify_.Take([&](const inotify_event& event) {
      if ((event.mask & IN_Q_OVERFLOW) != 0) ++changes.lost;
      used = IsAboutTheLock(event) || used;
    });
    if (!taken.ok()) return taken;
    if (!used && changes.lost == 0) return changes;
    // First the watches, then the look: who closes a new lock file before it is watched has made
    // its changes before they are looked for.
    if (absl::Status status = Arm(); !status.ok()) return status;
    const absl::StatusOr<bool> changed = Look();
    if (!changed.ok()) return changed.status();
    if (*changed || changes.lost > 0) changes.count = changes.others = 1;
    return changes;
  }

 private:
  bool IsAboutTheLock(const inotify_event& event) {
    if (event.wd == directory_) {
      if ((event.mask & IN_IGNORED) != 0) directory_.reset();
      return NameOf(event).empty() || NameOf(event) == lock_name_;
    }
    const auto file = std::find(files_.begin(), files_.end(), event.wd);
    if (file == files_.end()) return false;
    if ((event.mask & IN_IGNORED) != 0) files_.erase(file);
    return true;
  }

  // Watches what is at the two paths now. Where that is what was there before, it changes
  // nothing.
  absl::Status Arm() {
    const absl::StatusOr<int> directory = inotify_.Watch(directory_path_, kDirectoryEvents);
    if (absl::IsResourceExhausted(directory.status())) return directory.status();
    if (directory_.has_value() && (!directory.ok() || *directory != *directory_)) {
      inotify_.GiveUp(*directory_);
    }
    directory_ = directory.ok() ? std::optional<int>(*directory) : std::nullopt;
    const absl::StatusOr<int> file = inotify_.Watch(lock_path_, kFileEvents);
    if (!file.ok()) {
      if (absl::IsResourceExhausted(file.status()) || absl::IsPermissionDenied(file.status())) {
        return file.status();
      }
      if (directory.ok()) return absl::OkStatus();
      if (absl::IsPermissionDenied(directory.status())) return directory.status();
      return absl::NotFoundError(
          absl::StrCat("there is neither ", lock_path_,
                       " nor its directory, so nothing tells when iptables-legacy is used: mount "
                       "the host's file here, as "
                       "the kube-proxy DaemonSet does (hostPath of type FileOrCreate)"));
    }
    files_.erase(std::remove(files_.begin(), files_.end(), *file), files_.end());
    files_.push_back(*file);
    if (files_.size() > kMostFiles) {
      inotify_.GiveUp(files_.front());
      files_.erase(files_.begin());
    }
    return absl::OkStatus();
  }

  // Whether the tables differ, or may differ, from those of the last look.
  absl::StatusOr<bool> Look() {
    absl::StatusOr<IptablesLegacyTables> tables = read_();
    if (absl::IsAborted(tables.status())) {
      last_.reset();
      return true;
    }
    if (!tables.ok()) return tables.status();
    const bool changed =
        last_ != *tables || std::any_of(tables->begin(), tables->end(), [](const auto& table) {
          return !table.second.content.has_value();
        });
    last_ = *std::move(tables);
    return changed;
  }

  std::string lock_path_;
  std::string directory_path_;
  std::string lock_name_;
  Inotify inotify_;
  IptablesLegacyTableReader read_;
  std::optional<int> directory_;
  std::vector<int> files_;  // newest last
  // Empty: not known.
  std::optional<IptablesLegacyTables> last_;
};

}  // namespace

absl::StatusOr<Fingerprint> FingerprintEntries(Family family, const FingerprintKey& key,
                                               std::string entries) {
  for (size_t at = 0; at < entries.size();) {
    const size_t left = entries.size() - at;
    const size_t size = family == Family::kIPv4 ? TakeEntry<ipt_entry>(entries.data() + at, left)
                                                : TakeEntry<ip6t_entry>(entries.data() + at, left);
    if (size == 0) {
      return absl::DataLossError(absl::StrCat("what the kernel gave as rules of iptables-legacy ",
                                              FamilyName(family), " has no whole rule at byte ", at,
                                              " of ", entries.size()));
    }
    at += size;
  }
  Fingerprinter fingerprinter(key);
  fingerprinter.Add(entries);
  return fingerprinter.Finish();
}

absl::StatusOr<IptablesLegacyTableReader> OpenIptablesLegacyTables(
    const std::string& table_names_path) {
  auto reader = std::make_unique<TableReader>();
  if (absl::Status status = reader->Open(table_names_path); !status.ok()) return status;
  return [reader = std::move(reader)] { return reader->Read(); };
}

absl::StatusOr<std::unique_ptr<netlink::Monitor>> NewIptablesLegacyMonitor(
    const std::string& lock_path, const std::string& table_names_path) {
  absl::StatusOr<Inotify> inotify = Inotify::Create();
  if (!inotify.ok()) return inotify.status();
  absl::StatusOr<IptablesLegacyTableReader> read = OpenIptablesLegacyTables(table_names_path);
  if (!read.ok()) return read.status();
  auto monitor =
      std::make_unique<IptablesLegacyMonitor>(lock_path, *std::move(inotify), *std::move(read));
  if (absl::Status status = monitor->Start(); !status.ok()) return status;
  return monitor;
}

}  // namespace kipt::agent
