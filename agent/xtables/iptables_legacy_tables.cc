// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_legacy_tables.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

// Need struct in6_addr to be the C library's, and so come behind it.
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "agent/process/files.h"
#include "netlink/kernel_error.h"

namespace kipt::agent {
namespace {

using netlink::Family;
using netlink::FamilyName;
using netlink::KernelError;
using netlink::Table;
using netlink::TableName;

// Five tables a family; extensions may bring more.
constexpr size_t kMostNamesBytes = 64 << 10;
// A table that somebody rewrites this often meanwhile is one that changed.
constexpr int kMostAttempts = 5;

// The two families differ in the level and in the size of an entry; IPT_SO_* and IP6T_SO_*, struct
// ipt_get* and struct ip6t_get* are the same.
static_assert(sizeof(ipt_getinfo) == sizeof(ip6t_getinfo));
static_assert(sizeof(ipt_get_entries) == sizeof(ip6t_get_entries));

int LevelOf(Family family) { return family == Family::kIPv4 ? SOL_IP : SOL_IPV6; }

// Zeroes the counters of the entry that `entries` begins with and returns its size, or 0 where no
// whole entry stands there.
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
  return absl::StrCat("reading the ", what, " of legacy ", FamilyName(family), " ",
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
  // Kernels have written the name's end only, and what was on their stack behind it.
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
  return KernelError(errno,
                     absl::StrCat("opening a raw socket to ask for legacy ", FamilyName(family)),
                     "CAP_NET_RAW is needed in the user namespace of the network namespace");
}

}  // namespace

std::string PathOfFamily(absl::string_view path, Family family) {
  return absl::StrReplaceAll(path, {{"%s", FamilyName(family)}});
}

absl::StatusOr<Fingerprint> FingerprintEntries(Family family, const FingerprintKey& key,
                                               std::string entries) {
  for (size_t at = 0; at < entries.size();) {
    const size_t left = entries.size() - at;
    const size_t size = family == Family::kIPv4 ? TakeEntry<ipt_entry>(entries.data() + at, left)
                                                : TakeEntry<ip6t_entry>(entries.data() + at, left);
    if (size == 0) {
      return absl::DataLossError(absl::StrCat("what the kernel gave as rules of legacy ",
                                              FamilyName(family), " has no whole rule at byte ", at,
                                              " of ", entries.size()));
    }
    at += size;
  }
  Fingerprinter fingerprinter(key);
  fingerprinter.Add(entries);
  return fingerprinter.Finish();
}

absl::StatusOr<IptablesLegacyTableReader> IptablesLegacyTableReader::Open(
    const std::string& table_names_path) {
  IptablesLegacyTableReader reader;
  for (const Family family : netlink::kFamilies) {
    absl::StatusOr<OwnedFd> socket = OpenSocket(family);
    if (!socket.ok()) return socket.status();
    Source source{.socket = *std::move(socket),
                  .names = OwnedFd(),
                  .names_path = PathOfFamily(table_names_path, family)};
    if (absl::Status status = reader.OpenNames(source); !status.ok()) return status;
    reader.sources_.emplace(family, std::move(source));
  }
  return reader;
}

// The list is that of the namespace of the thread that opens it; read later, it stays that one's.
absl::Status IptablesLegacyTableReader::OpenNames(Source& source) const {
  if (!source.socket.valid()) return absl::OkStatus();
  OwnedFd names(open(source.names_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!names.valid()) {
    // No file: no module, and no table.
    if (errno == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", source.names_path,
                                                   ", which only uid 0 of the namespace may"));
  }
  if (absl::Status status = netns_->Check(); !status.ok()) return status;
  source.names = std::move(names);
  return absl::OkStatus();
}

absl::StatusOr<std::set<std::string>> IptablesLegacyTableReader::Names(Source& source) const {
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

absl::StatusOr<IptablesLegacyTable> IptablesLegacyTableReader::ReadTable(
    Family family, Table table, const Source& source) const {
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    const absl::StatusOr<ipt_getinfo> info = GetInfo(source.socket.get(), family, table);
    if (!info.ok()) return info.status();
    IptablesLegacyTable read;
    read.layout.assign(sizeof *info, '\0');
    std::memcpy(read.layout.data(), &*info, sizeof *info);
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

absl::StatusOr<IptablesLegacyTables> IptablesLegacyTableReader::Read() {
  IptablesLegacyTables tables;
  for (auto& [family, source] : sources_) {
    if (!source.socket.valid()) continue;
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

}  // namespace kipt::agent
