// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/routing.h"

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/process/files.h"
#include "netlink/attributes.h"
#include "netlink/socket.h"

namespace kipt::agent {
namespace {

using netlink::Attributes;
using netlink::Family;
using netlink::WireBytes;

// A dump that changed meanwhile is taken again.
constexpr int kMostAttempts = 5;

absl::Status Failure(int error, absl::string_view step) {
  return absl::ErrnoToStatus(error, absl::StrCat("reading the routing rules: ", step));
}

// Routing attributes are in the byte order of the machine.
template <typename T>
std::optional<T> Get(const Attributes& attributes, uint16_t type) {
  const std::optional<WireBytes> bytes = attributes.Bytes(type);
  if (!bytes || bytes->size() != sizeof(T)) return std::nullopt;
  T value = {};
  std::memcpy(&value, bytes->data(), sizeof value);
  return value;
}

// As "%#x" prints it.
std::string Hex(uint32_t value) { return value == 0 ? "0" : absl::StrCat("0x", absl::Hex(value)); }

// "10.0.0.0/8", "10.0.0.1", "all".
std::string AddressText(int family, const Attributes& attributes, uint16_t type, uint8_t length) {
  const std::optional<WireBytes> address = attributes.Bytes(type);
  const size_t size = family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr);
  if (!address || address->size() != size) {
    return length == 0 ? "all" : absl::StrCat("0/", static_cast<int>(length));
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(family, address->data(), text.data(), text.size());
  if (length == size * 8) return text.data();
  return absl::StrCat(text.data(), "/", static_cast<int>(length));
}

std::string PortsText(const fib_rule_port_range& ports) {
  return ports.start == ports.end ? absl::StrCat(ports.start)
                                  : absl::StrCat(ports.start, "-", ports.end);
}

struct NumberName {
  uint32_t number;
  absl::string_view name;
};
constexpr NumberName kProtocols[] = {{IPPROTO_TCP, "tcp"},
                                     {IPPROTO_UDP, "udp"},
                                     {IPPROTO_ICMP, "icmp"},
                                     {IPPROTO_ICMPV6, "ipv6-icmp"},
                                     {IPPROTO_SCTP, "sctp"}};
// What is in the kernel's own headers; other names are in files of iproute2.
constexpr NumberName kRouteTables[] = {
    {RT_TABLE_LOCAL, "local"}, {RT_TABLE_MAIN, "main"}, {RT_TABLE_DEFAULT, "default"}};
constexpr NumberName kActions[] = {{FR_ACT_NOP, "nop"},
                                   {FR_ACT_BLACKHOLE, "blackhole"},
                                   {FR_ACT_UNREACHABLE, "unreachable"},
                                   {FR_ACT_PROHIBIT, "prohibit"}};

// The number itself where it has no name.
std::string NameOf(absl::Span<const NumberName> names, uint32_t number) {
  for (const NumberName& one : names) {
    if (one.number == number) return std::string(one.name);
  }
  return absl::StrCat(number);
}

struct RawRule {
  fib_rule_hdr header = {};
  Attributes attributes;
};

// "detached": there is no interface of that name.
void AppendInterface(const RawRule& rule, absl::string_view option, uint16_t type,
                     uint32_t detached, std::string& text) {
  const std::optional<std::string> name = rule.attributes.Text(type);
  if (!name) return;
  absl::StrAppend(&text, option, *name, (rule.header.flags & detached) != 0 ? " [detached]" : "");
}

std::string SelectorText(const RawRule& rule, const FwmarkRule& known) {
  const Attributes& attributes = rule.attributes;
  const int family = rule.header.family;
  std::string text = (rule.header.flags & FIB_RULE_INVERT) != 0 ? "not from " : "from ";
  absl::StrAppend(&text, AddressText(family, attributes, FRA_SRC, rule.header.src_len));
  if (attributes.Bytes(FRA_DST) || rule.header.dst_len != 0) {
    absl::StrAppend(&text, " to ", AddressText(family, attributes, FRA_DST, rule.header.dst_len));
  }
  if (rule.header.tos != 0) absl::StrAppend(&text, " tos ", Hex(rule.header.tos));
  absl::StrAppend(&text, " fwmark ", Hex(known.mark));
  if (known.mask != 0xffffffff) absl::StrAppend(&text, "/", Hex(known.mask));
  AppendInterface(rule, " iif ", FRA_IIFNAME, FIB_RULE_IIF_DETACHED, text);
  AppendInterface(rule, " oif ", FRA_OIFNAME, FIB_RULE_OIF_DETACHED, text);
  if (const auto users = Get<fib_rule_uid_range>(attributes, FRA_UID_RANGE)) {
    absl::StrAppend(&text, " uidrange ", users->start, "-", users->end);
  }
  if (const auto protocol = Get<uint8_t>(attributes, FRA_IP_PROTO)) {
    absl::StrAppend(&text, " ipproto ", NameOf(kProtocols, *protocol));
  }
  if (const auto ports = Get<fib_rule_port_range>(attributes, FRA_SPORT_RANGE)) {
    absl::StrAppend(&text, " sport ", PortsText(*ports));
  }
  if (const auto ports = Get<fib_rule_port_range>(attributes, FRA_DPORT_RANGE)) {
    absl::StrAppend(&text, " dport ", PortsText(*ports));
  }
  return text;
}

std::string ActionText(const RawRule& rule) {
  const Attributes& attributes = rule.attributes;
  switch (rule.header.action) {
    case FR_ACT_TO_TBL: {
      if (Get<uint8_t>(attributes, FRA_L3MDEV).value_or(0) != 0) return "lookup [l3mdev-table]";
      const uint32_t table = Get<uint32_t>(attributes, FRA_TABLE).value_or(rule.header.table);
      std::string text = absl::StrCat("lookup ", NameOf(kRouteTables, table));
      const auto length = Get<uint32_t>(attributes, FRA_SUPPRESS_PREFIXLEN);
      // -1 stands for none.
      if (length && *length != UINT32_MAX) {
        absl::StrAppend(&text, " suppress_prefixlength ", *length);
      }
      return text;
    }
    case FR_ACT_GOTO:
      return absl::StrCat("goto ", Get<uint32_t>(attributes, FRA_GOTO).value_or(0),
                          (rule.header.flags & FIB_RULE_UNRESOLVED) != 0 ? " [unresolved]" : "");
    default:
      return NameOf(kActions, rule.header.action);
  }
}

// Nothing where the rule does not look at the mark.
std::optional<FwmarkRule> ReadRule(Family family, WireBytes message) {
  constexpr size_t kHeaders = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(fib_rule_hdr));
  if (message.size() < kHeaders) return std::nullopt;
  RawRule raw;
  std::memcpy(&raw.header, message.data() + NLMSG_HDRLEN, sizeof raw.header);
  const std::optional<Attributes> attributes = Attributes::Parse(message.subspan(kHeaders));
  if (!attributes) return std::nullopt;
  raw.attributes = *attributes;
  const std::optional<uint32_t> mark = Get<uint32_t>(raw.attributes, FRA_FWMARK);
  const std::optional<uint32_t> mask = Get<uint32_t>(raw.attributes, FRA_FWMASK);
  if (!mark && !mask) return std::nullopt;
  FwmarkRule rule = {.family = family,
                     .priority = Get<uint32_t>(raw.attributes, FRA_PRIORITY).value_or(0),
                     .mark = mark.value_or(0),
                     .mask = mask.value_or(0xffffffff),
                     .text = {}};
  rule.text = absl::StrCat(rule.priority, ": ", SelectorText(raw, rule), " ", ActionText(raw));
  return rule;
}

struct DumpReader {
  Family family;
  std::vector<FwmarkRule>* rules;
};

int TakeMessage(const nlmsghdr* message, void* context) {
  if (message->nlmsg_type != RTM_NEWRULE) return MNL_CB_OK;
  const auto* reader = static_cast<DumpReader*>(context);
  std::optional<FwmarkRule> rule = ReadRule(reader->family, netlink::MessageBytes(message));
  if (rule) reader->rules->push_back(*std::move(rule));
  return MNL_CB_OK;
}

absl::Status Send(mnl_socket* socket, Family family, uint32_t sequence) {
  std::array<char, NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(fib_rule_hdr))> buffer{};
  nlmsghdr* message = mnl_nlmsg_put_header(buffer.data());
  message->nlmsg_type = RTM_GETRULE;
  message->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message->nlmsg_seq = sequence;
  auto* header =
      static_cast<fib_rule_hdr*>(mnl_nlmsg_put_extra_header(message, sizeof(fib_rule_hdr)));
  header->family = family == Family::kIPv4 ? AF_INET : AF_INET6;
  if (mnl_socket_sendto(socket, message, message->nlmsg_len) < 0) return Failure(errno, "send");
  return absl::OkStatus();
}

// Whether every message in a datagram is whole: mnl_cb_run believes lengths of 2^31 and more.
bool AreWhole(const char* datagram, size_t size) {
  const auto* message = reinterpret_cast<const nlmsghdr*>(datagram);
  int rest = static_cast<int>(size);
  while (netlink::IsWhole(message, rest)) message = mnl_nlmsg_next(message, &rest);
  return rest <= 0;
}

// The errno of the dump, 0 where it is whole.
int Receive(mnl_socket* socket, uint32_t sequence, DumpReader reader) {
  // A dump's messages come in pieces of at most this size (NLMSG_GOODSIZE, less than a large page).
  alignas(nlmsghdr) std::array<char, 32768> buffer;
  const unsigned port = mnl_socket_get_portid(socket);
  for (;;) {
    const ssize_t size = mnl_socket_recvfrom(socket, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno;
    if (!AreWhole(buffer.data(), static_cast<size_t>(size))) return EBADMSG;
    const int verdict =
        mnl_cb_run(buffer.data(), static_cast<size_t>(size), sequence, port, TakeMessage, &reader);
    if (verdict < 0) return errno;
    if (verdict == MNL_CB_STOP) return 0;
  }
}

absl::Status ReadFamily(Family family, std::vector<FwmarkRule>& rules) {
  int error = EINTR;
  for (int attempt = 0; error == EINTR && attempt < kMostAttempts; ++attempt) {
    // A new one each time: what is left of a dump that was given up would come first.
    const netlink::MnlSocketPtr socket(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC));
    if (socket == nullptr) return Failure(errno, "socket");
    if (mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) < 0) return Failure(errno, "bind");
    const uint32_t sequence = 1;
    if (absl::Status status = Send(socket.get(), family, sequence); !status.ok()) return status;
    std::vector<FwmarkRule> read;
    error = Receive(socket.get(), sequence, {.family = family, .rules = &read});
    if (error == 0) std::move(read.begin(), read.end(), std::back_inserter(rules));
  }
  // The kernel has no policy routing (CONFIG_IP_MULTIPLE_TABLES), or none of this family.
  if (error == EOPNOTSUPP || error == EAFNOSUPPORT) return absl::OkStatus();
  return error == 0 ? absl::OkStatus() : Failure(error, netlink::FamilyName(family));
}

constexpr absl::string_view kAll = "all";

absl::Status ReadFailure(int error, absl::string_view path) {
  return absl::ErrnoToStatus(error, absl::StrCat("reading ", path));
}

// Nothing where the interface has gone since it was listed.
absl::StatusOr<std::optional<bool>> ReadSetting(const std::string& conf_directory,
                                                absl::string_view interface) {
  const std::string path = absl::StrCat(conf_directory, "/", interface, "/route_localnet");
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status()) && interface != kAll) return std::optional<bool>();
  if (!text.ok()) return text.status();
  int value = 0;
  if (absl::SimpleAtoi(*text, &value)) return std::optional<bool>(value != 0);
  return ReadFailure(EINVAL, path);
}

}  // namespace

absl::StatusOr<std::vector<FwmarkRule>> ReadFwmarkRules() {
  std::vector<FwmarkRule> rules;
  for (const Family family : netlink::kFamilies) {
    if (absl::Status status = ReadFamily(family, rules); !status.ok()) return status;
  }
  return rules;
}

absl::StatusOr<std::vector<std::string>> ReadRouteLocalnet(const std::string& conf_directory) {
  std::vector<std::string> names;
  if (const int error = ListDirectory(conf_directory, names); error != 0) {
    return ReadFailure(error, conf_directory);
  }
  const absl::StatusOr<std::optional<bool>> all = ReadSetting(conf_directory, kAll);
  if (!all.ok()) return all.status();
  if (all->value_or(false)) return std::vector<std::string>{std::string(kAll)};
  std::vector<std::string> exposed;
  for (const std::string& name : names) {
    if (name == kAll || name == "lo") continue;
    const absl::StatusOr<std::optional<bool>> own = ReadSetting(conf_directory, name);
    if (!own.ok()) return own.status();
    if (own->value_or(false)) exposed.push_back(name);
  }
  return exposed;
}

}  // namespace kipt::agent
