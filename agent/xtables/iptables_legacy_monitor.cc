// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_legacy_monitor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

// Need struct in6_addr to be the C library's, and so come after it.
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "agent/process/files.h"
#include "agent/process/network_namespaces.h"
#include "agent/xtables/iptables_legacy_programs.h"
#include "agent/xtables/xtables_lock_watch.h"
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
// Bytes of rules. The kernel holds the table's lock while it copies them, 10 MB in a third of a
// second.
constexpr size_t kMostTableBytes = size_t{256} << 10;

// The two families differ in the level and in the size of an entry; IPT_SO_* and IP6T_SO_*, struct
// ipt_get* and struct ip6t_get* are the same.
static_assert(sizeof(ipt_getinfo) == sizeof(ip6t_getinfo));
static_assert(sizeof(ipt_get_entries) == sizeof(ip6t_get_entries));

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

// For each table that exists, a hash of all rules, policies and hooks without the counters; nothing
// where it is too large to read.
using Tables = std::map<std::pair<Family, Table>, std::optional<size_t>>;

// The tables of one family. Stays in the network namespace of the thread that opened it, which it
// keeps alive.
class FamilyReader {
 public:
  FamilyReader(Family family, absl::string_view table_names_path)
      : family_(family), names_path_(PathOfFamily(table_names_path, family)) {}

  absl::Status Open() {
    const bool ipv4 = family_ == Family::kIPv4;
    socket_ = OwnedFd(socket(ipv4 ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
    if (socket_.valid()) return OpenNames();
    // A kernel without IPv6 has no tables of IPv6.
    if (errno == EAFNOSUPPORT && !ipv4) return absl::OkStatus();
    return KernelError(
        errno,
        absl::StrCat("opening a raw socket to ask for iptables-legacy ", FamilyName(family_)),
        "CAP_NET_RAW is needed in the user namespace of the network namespace");
  }

  absl::Status AddTo(Tables& tables) {
    if (!socket_.valid()) return absl::OkStatus();
    const absl::StatusOr<std::set<std::string>> names = Names();
    if (!names.ok()) return names.status();
    for (const Table table : netlink::kTables) {
      if (names->count(std::string(TableName(table))) == 0) continue;
      const absl::StatusOr<std::optional<size_t>> hash = HashOf(table);
      // Removed since it was listed, with its module.
      if (absl::IsNotFound(hash.status())) continue;
      if (!hash.ok()) return hash.status();
      tables[{family_, table}] = *hash;
    }
    return absl::OkStatus();
  }

 private:
  // The list stays that of the namespace in which it was opened.
  absl::Status OpenNames() {
    OwnedFd names(open(names_path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!names.valid()) {
      // No file: no module, and no table.
      if (errno == ENOENT) {
        const absl::Status missing = ReadProcNetFile(names_path_).status();
        return absl::IsNotFound(missing) ? absl::OkStatus() : missing;
      }
      const bool refused = errno == EACCES || errno == EPERM;
      return absl::ErrnoToStatus(
          errno, absl::StrCat("cannot read ", names_path_,
                              refused ? ", which only uid 0 of the namespace may" : ""));
    }
    if (absl::Status status = netns_.Check(); !status.ok()) return status;
    names_ = std::move(names);
    return absl::OkStatus();
  }

  absl::StatusOr<std::set<std::string>> Names() {
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (!names_.valid()) {
        if (absl::Status status = OpenNames(); !status.ok()) return status;
        if (!names_.valid()) return std::set<std::string>();
      }
      if (lseek(names_.get(), 0, SEEK_SET) == 0) {
        const absl::StatusOr<std::string> text =
            ReadToEnd(names_.get(), names_path_, kMostNamesBytes);
        if (text.ok()) return std::set<std::string>(absl::StrSplit(*text, '\n', absl::SkipEmpty()));
      }
      // The module was removed, and with it this file; it may have come back.
      names_.Close();
    }
    return absl::UnavailableError(absl::StrCat("cannot read ", names_path_));
  }

  std::string ActionOf(absl::string_view what, Table table) const {
    return absl::StrCat("reading the ", what, " of iptables-legacy ", FamilyName(family_), " ",
                        TableName(table));
  }

  // False, with errno: the kernel refused.
  bool Get(int option, void* data, size_t size) const {
    auto length = static_cast<socklen_t>(size);
    const int level = family_ == Family::kIPv4 ? SOL_IP : SOL_IPV6;
    return getsockopt(socket_.get(), level, option, data, &length) == 0;
  }

  // Nothing: the table is too large.
  absl::StatusOr<std::optional<size_t>> HashOf(Table table) const {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      ipt_get_entries head = {};
      TableName(table).copy(head.name, sizeof head.name - 1);
      ipt_getinfo info = {};
      std::memcpy(info.name, head.name, sizeof info.name);
      if (!Get(IPT_SO_GET_INFO, &info, sizeof info)) {
        return KernelError(errno, ActionOf("layout", table));
      }
      if (info.size > kMostTableBytes) return std::nullopt;
      // Kernels have written the name's end only, and what was on their stack after it.
      std::memcpy(info.name, head.name, sizeof info.name);
      head.size = info.size;
      std::string entries(sizeof head + info.size, '\0');
      std::memcpy(entries.data(), &head, sizeof head);
      if (Get(IPT_SO_GET_ENTRIES, entries.data(), entries.size())) {
        const absl::StatusOr<size_t> hash = HashEntries(family_, entries.substr(sizeof head));
        if (!hash.ok()) return hash.status();
        // With the layout: equal rules may be of another chain.
        return absl::HashOf(absl::string_view(reinterpret_cast<const char*>(&info), sizeof info),
                            *hash);
      }
      // Else it has another size by now.
      if (errno != EAGAIN) return KernelError(errno, ActionOf("rules", table));
    }
    return absl::AbortedError(
        absl::StrCat(ActionOf("rules", table), ": it was rewritten all the while"));
  }

  Family family_;
  NetnsGuard netns_;
  OwnedFd socket_;
  OwnedFd names_;  // none: the kernel has no iptables-legacy tables of this family yet
  std::string names_path_;
};

class IptablesLegacyMonitor : public netlink::Monitor {
 public:
  IptablesLegacyMonitor(XtablesLockWatch lock, const std::string& table_names_path)
      : lock_(std::move(lock)) {
    for (const Family family : netlink::kFamilies) readers_.emplace_back(family, table_names_path);
  }

  absl::Status Start() {
    for (FamilyReader& reader : readers_) {
      if (absl::Status status = reader.Open(); !status.ok()) return status;
    }
    return HaveChanged().status();
  }

  int fd() const override { return lock_.fd(); }

  absl::StatusOr<RulesetChanges> Drain() override {
    // First the lock, then the tables: a program that closes a new lock file before that is watched
    // has made its changes before the tables are read.
    const absl::StatusOr<XtablesLockWatch::Use> use = lock_.Take();
    if (!use.ok()) return use.status();
    RulesetChanges changes = {.lost = use->lost};
    if (!use->any()) return changes;
    const absl::StatusOr<bool> changed = HaveChanged();
    if (!changed.ok()) return changed.status();
    if (*changed || changes.lost > 0) changes.count = changes.others = 1;
    return changes;
  }

 private:
  // Whether the tables differ, or may differ, from those of the last time.
  absl::StatusOr<bool> HaveChanged() {
    Tables tables;
    for (FamilyReader& reader : readers_) {
      absl::Status status = reader.AddTo(tables);
      if (absl::IsAborted(status)) {
        last_.reset();
        return true;
      }
      if (!status.ok()) return status;
    }
    const bool may_differ =
        absl::c_any_of(tables, [](const auto& table) { return !table.second.has_value(); });
    const bool changed = may_differ || last_ != tables;
    last_ = std::move(tables);
    return changed;
  }

  XtablesLockWatch lock_;
  std::vector<FamilyReader> readers_;
  // Empty: not known.
  std::optional<Tables> last_;
};

}  // namespace

absl::StatusOr<size_t> HashEntries(Family family, std::string entries) {
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
  return absl::HashOf(entries);
}

absl::StatusOr<std::unique_ptr<netlink::Monitor>> NewIptablesLegacyMonitor(
    const std::string& lock_path, const std::string& table_names_path) {
  absl::StatusOr<XtablesLockWatch> lock = XtablesLockWatch::Start(lock_path);
  if (!lock.ok()) return lock.status();
  auto monitor = std::make_unique<IptablesLegacyMonitor>(*std::move(lock), table_names_path);
  if (absl::Status status = monitor->Start(); !status.ok()) return status;
  return monitor;
}

}  // namespace kipt::agent
