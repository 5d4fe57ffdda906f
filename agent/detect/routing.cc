// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/routing.h"

#include <arpa/inet.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
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

using Names = absl::Span<const std::pair<uint32_t, absl::string_view>>;
constexpr Names::value_type kProtocols[] = {{IPPROTO_TCP, "tcp"},
                                            {IPPROTO_UDP, "udp"},
                                            {IPPROTO_ICMP, "icmp"},
                                            {IPPROTO_ICMPV6, "ipv6-icmp"},
                                            {IPPROTO_SCTP, "sctp"}};
// Those of the kernel's headers; other names are in files of iproute2.
constexpr Names::value_type kRouteTables[] = {
    {RT_TABLE_LOCAL, "local"}, {RT_TABLE_MAIN, "main"}, {RT_TABLE_DEFAULT, "default"}};
constexpr Names::value_type kActions[] = {{FR_ACT_NOP, "nop"},
                                          {FR_ACT_BLACKHOLE, "blackhole"},
                                          {FR_ACT_UNREACHABLE, "unreachable"},
                                          {FR_ACT_PROHIBIT, "prohibit"}};

// The number itself if it has no name.
std::string NameOf(Names names, uint32_t number) {
  const auto found = absl::c_find_if(names, [&](const auto& one) { return one.first == number; });
  return found == names.end() ? absl::StrCat(number) : std::string(found->second);
}

struct RawRule {
  fib_rule_hdr header = {};
  Attributes attributes;
};

std::string SelectorText(const RawRule& rule, const FwmarkRule& known) {
  const auto& [header, attributes] = rule;
  const int family = header.family;
  std::string text = known.inverted ? "not from " : "from ";
  const auto add = [&](const auto&... words) { absl::StrAppend(&text, words...); };
  // "detached": there is no interface of that name.
  const auto add_interface = [&](absl::string_view option, uint16_t type, uint32_t detached) {
    const std::optional<std::string> name = rule.attributes.Text(type);
    if (name) add(option, *name, (rule.header.flags & detached) != 0 ? " [detached]" : "");
  };
  const auto add_ports = [&](absl::string_view option, uint16_t type) {
    const auto ports = rule.attributes.Host<fib_rule_port_range>(type);
    if (ports) add(option, ports->start);
    if (ports && ports->end != ports->start) add("-", ports->end);
  };
  add(AddressText(family, attributes, FRA_SRC, header.src_len));
  // The kernel leaves the address out if the length is 0.
  if (header.dst_len != 0) add(" to ", AddressText(family, attributes, FRA_DST, header.dst_len));
  if (header.tos != 0) add(" tos ", Hex(header.tos));
  add(" fwmark ", Hex(known.mark));
  if (known.mask != 0xffffffff) add("/", Hex(known.mask));
  add_interface(" iif ", FRA_IIFNAME, FIB_RULE_IIF_DETACHED);
  add_interface(" oif ", FRA_OIFNAME, FIB_RULE_OIF_DETACHED);
  if (const auto users = attributes.Host<fib_rule_uid_range>(FRA_UID_RANGE)) {
    add(" uidrange ", users->start, "-", users->end);
  }
  if (const auto protocol = attributes.Host<uint8_t>(FRA_IP_PROTO)) {
    add(" ipproto ", NameOf(kProtocols, *protocol));
  }
  add_ports(" sport ", FRA_SPORT_RANGE);
  add_ports(" dport ", FRA_DPORT_RANGE);
  return text;
}

std::string ActionText(const RawRule& rule) {
  const Attributes& attributes = rule.attributes;
  switch (rule.header.action) {
    case FR_ACT_TO_TBL: {
      if (attributes.Host<uint8_t>(FRA_L3MDEV).value_or(0) != 0) return "lookup [l3mdev-table]";
      const uint32_t table = attributes.Host<uint32_t>(FRA_TABLE).value_or(rule.header.table);
      std::string text = absl::StrCat("lookup ", NameOf(kRouteTables, table));
      const auto length = attributes.Host<uint32_t>(FRA_SUPPRESS_PREFIXLEN);
      // -1 means none.
      if (length && *length != UINT32_MAX) {
        absl::StrAppend(&text, " suppress_prefixlength ", *length);
      }
      return text;
    }
    case FR_ACT_GOTO:
      return absl::StrCat("goto ", attributes.Host<uint32_t>(FRA_GOTO).value_or(0),
                          (rule.header.flags & FIB_RULE_UNRESOLVED) != 0 ? " [unresolved]" : "");
    default:
      return NameOf(kActions, rule.header.action);
  }
}

// Nothing if the rule does not read the mark.
std::optional<FwmarkRule> ReadRule(WireBytes message) {
  constexpr size_t kHeaders = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(fib_rule_hdr));
  if (message.size() < kHeaders) return std::nullopt;
  const std::optional<Attributes> attributes = Attributes::Parse(message.subspan(kHeaders));
  if (!attributes) return std::nullopt;
  RawRule raw = {.attributes = *attributes};
  std::memcpy(&raw.header, message.data() + NLMSG_HDRLEN, sizeof raw.header);
  const std::optional<uint32_t> mark = raw.attributes.Host<uint32_t>(FRA_FWMARK);
  const std::optional<uint32_t> mask = raw.attributes.Host<uint32_t>(FRA_FWMASK);
  if (!mark && !mask) return std::nullopt;
  FwmarkRule rule = {.family = raw.header.family == AF_INET ? Family::kIPv4 : Family::kIPv6,
                     .mark = mark.value_or(0),
                     .mask = mask.value_or(0xffffffff),
                     .inverted = (raw.header.flags & FIB_RULE_INVERT) != 0,
                     .text = {}};
  rule.text = absl::StrCat(raw.attributes.Host<uint32_t>(FRA_PRIORITY).value_or(0), ": ",
                           SelectorText(raw, rule), " ", ActionText(raw));
  return rule;
}

absl::Status ReadFamily(netlink::Socket& socket, Family family, std::vector<FwmarkRule>& rules) {
  int error = 0;
  // Asked once: the kernel never marks a dump of routing rules as interrupted.
  netlink::Requests request(socket.ReserveSequences(1));
  request.Begin(RTM_GETRULE, family == Family::kIPv4 ? AF_INET : AF_INET6, NLM_F_DUMP);
  absl::Status status = socket.Ask(request, [&](const netlink::Reply& reply) {
    error = reply.error_number;
    if (reply.message == nullptr || reply.message->nlmsg_type != RTM_NEWRULE) return;
    std::optional<FwmarkRule> rule = ReadRule(netlink::MessageBytes(reply.message));
    if (rule) rules.push_back(*std::move(rule));
  });
  // The kernel has no policy routing (CONFIG_IP_MULTIPLE_TABLES), or none of this family.
  if (error == EOPNOTSUPP || error == EAFNOSUPPORT) return absl::OkStatus();
  status.Update(absl::ErrnoToStatus(error, netlink::FamilyName(family)));
  return status;
}

constexpr absl::string_view kAll = "all";

// False if the interface has vanished since it was listed: its directory, too.
absl::StatusOr<bool> ReadSetting(const std::string& conf_directory, absl::string_view interface) {
  const std::string directory = absl::StrCat(conf_directory, "/", interface);
  const std::string path = directory + "/route_localnet";
  const absl::StatusOr<std::string> text = ReadFile(path);
  const auto vanished = [&] { return access(directory.c_str(), F_OK) != 0 && errno == ENOENT; };
  if (absl::IsNotFound(text.status()) && interface != kAll && vanished()) return false;
  if (!text.ok()) return text.status();
  int value = 0;
  if (!absl::SimpleAtoi(*text, &value)) return ReadFailure(EINVAL, path);
  return value != 0;
}

}  // namespace

std::string LoopbackName() {
  std::array<char, IF_NAMESIZE> name{};
  return if_indextoname(1, name.data()) == nullptr ? "" : name.data();
}

absl::StatusOr<std::vector<FwmarkRule>> ReadFwmarkRules() {
  const absl::StatusOr<std::unique_ptr<netlink::Socket>> socket =
      netlink::Socket::Open(NETLINK_ROUTE);
  absl::Status status = socket.status();
  std::vector<FwmarkRule> rules;
  for (const Family family : netlink::kFamilies) {
    if (status.ok()) status = ReadFamily(**socket, family, rules);
  }
  if (status.ok()) return rules;
  return absl::Status(status.code(), absl::StrCat("reading the routing rules: ", status.message()));
}

RouteLocalnet ReadRouteLocalnet(const std::string& sysctls) {
  const std::string conf_directory = sysctls + "/ipv4/conf";
  RouteLocalnet found;
  std::vector<std::string> names;
  if (const int error = ListDirectory(conf_directory, names); error != 0) {
    // Not a kernel without IPv4: that has no netfilter either.
    found.unread = std::string(ReadFailure(error, conf_directory).message());
    return found;
  }
  const absl::StatusOr<bool> all = ReadSetting(conf_directory, kAll);
  if (all.ok() && *all) return {.interfaces = {std::string(kAll)}};
  if (!all.ok()) found.unread = std::string(all.status().message());
  const std::string loopback = LoopbackName();
  for (const std::string& name : names) {
    if (name == kAll || name == loopback) continue;
    const absl::StatusOr<bool> own = ReadSetting(conf_directory, name);
    if (own.ok() && *own) found.interfaces.push_back(name);
    if (!own.ok() && found.unread.empty()) found.unread = std::string(own.status().message());
  }
  return found;
}

}  // namespace kipt::agent
