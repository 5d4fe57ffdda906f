// SPDX-License-Identifier: Apache-2.0
#include "tests/support/service_rules.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "netlink/backend.h"
#include "netlink/transaction.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

constexpr int kEndpoints = 3;
constexpr size_t kOperationsAtOnce = 4000;
constexpr char kServices[] = "KUBE-SERVICES";

ChainId Nat(Family family, std::string name) { return {family, Table::kNat, std::move(name)}; }

std::string ServiceChain(int service) { return absl::StrFormat("KUBE-SVC-%016d", service); }

std::string EndpointChain(int service, int endpoint) {
  return absl::StrFormat("KUBE-SEP-%014d%02d", service, endpoint);
}

// The whole of one address.
netlink::PrefixMatch Address(Family family, uint8_t net, int number) {
  netlink::PrefixMatch match;
  match.prefix.length = family == Family::kIPv4 ? 32 : 128;
  match.prefix.address = {net};
  const size_t last = family == Family::kIPv4 ? 3 : 15;
  for (size_t i = 0; i < 3; ++i) {
    match.prefix.address[last - i] = static_cast<uint8_t>(number >> (8 * i));
  }
  return match;
}

Rule JumpTo(std::string chain, std::string comment) {
  return {.comment = std::move(comment), .target = netlink::Jump{std::move(chain)}};
}

void AddEndpoint(Family family, int service, int endpoint, const std::string& mark_chain,
                 std::vector<Operation>& operations) {
  const ChainId chain = Nat(family, EndpointChain(service, endpoint));
  const std::string comment = absl::StrCat("default/service-", service);
  Rule hairpin = JumpTo(mark_chain, comment);
  hairpin.source = Address(family, 11, service * kEndpoints + endpoint);
  operations.emplace_back(AddRule{.chain = chain, .rule = hairpin});
  operations.emplace_back(AddRule{
      .chain = chain, .rule = {.comment = comment, .target = netlink::SetMark{0x4000, 0x4000}}});
}

void AddService(Family family, int service, const std::string& mark_chain,
                std::vector<Operation>& operations) {
  const std::string comment = absl::StrCat("default/service-", service, " cluster IP");
  const ChainId chain = Nat(family, ServiceChain(service));
  Rule masquerade = JumpTo(mark_chain, comment);
  masquerade.source = Address(family, 12, 1);
  masquerade.source->negated = true;
  operations.emplace_back(AddRule{.chain = chain, .rule = masquerade});
  for (int endpoint = 0; endpoint < kEndpoints; ++endpoint) {
    AddEndpoint(family, service, endpoint, mark_chain, operations);
    operations.emplace_back(
        AddRule{.chain = chain, .rule = JumpTo(EndpointChain(service, endpoint), comment)});
  }
  Rule dispatch = JumpTo(ServiceChain(service), comment);
  dispatch.destination = Address(family, 10, service);
  operations.emplace_back(AddRule{.chain = Nat(family, kServices), .rule = dispatch});
}

absl::Status LoadNft(const std::vector<Operation>& operations) {
  absl::StatusOr<std::unique_ptr<netlink::Backend>> backend = netlink::NewNftBackend();
  if (!backend.ok()) return backend.status();
  for (size_t i = 0; i < operations.size(); i += kOperationsAtOnce) {
    const absl::StatusOr<netlink::Snapshot> now = (*backend)->Read({});
    if (!now.ok()) return now.status();
    netlink::Transaction part{.generation = now->generation, .operations = {}};
    const size_t end = std::min(operations.size(), i + kOperationsAtOnce);
    part.operations.assign(operations.begin() + static_cast<ptrdiff_t>(i),
                           operations.begin() + static_cast<ptrdiff_t>(end));
    if (absl::Status status = (*backend)->Apply(part); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status LoadLegacy(Family family, std::vector<Operation> operations) {
  const std::string program =
      family == Family::kIPv4 ? "iptables-legacy-restore" : "ip6tables-legacy-restore";
  const netlink::Transaction all{.operations = std::move(operations)};
  const ProgramResult result =
      RunProgram({program, "--noflush"}, netlink::ToRestoreText(all, family));
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(program, ": ", result.err));
}

std::vector<Operation> ServiceOperations(Family family, int services,
                                         const std::string& mark_chain) {
  std::vector<Operation> operations;
  for (const std::string& name : {std::string(kServices), mark_chain}) {
    operations.emplace_back(CreateChain{Nat(family, name)});
  }
  for (int service = 0; service < services; ++service) {
    operations.emplace_back(CreateChain{Nat(family, ServiceChain(service))});
    for (int endpoint = 0; endpoint < kEndpoints; ++endpoint) {
      operations.emplace_back(CreateChain{Nat(family, EndpointChain(service, endpoint))});
    }
  }
  for (int service = 0; service < services; ++service)
    AddService(family, service, mark_chain, operations);
  // Last: until then no commit has anything to walk through.
  for (const char* base : {"PREROUTING", "OUTPUT"}) {
    operations.emplace_back(CreateChain{Nat(family, base)});
    operations.emplace_back(AddRule{.chain = Nat(family, base),
                                    .rule = JumpTo(kServices, "kubernetes service portals")});
  }
  return operations;
}

}  // namespace

absl::Status LoadServices(IptablesMode mode, int services, const std::string& mark_chain) {
  if (services == 0) return absl::OkStatus();
  for (const Family family : netlink::kFamilies) {
    std::vector<Operation> operations = ServiceOperations(family, services, mark_chain);
    absl::Status status = mode == IptablesMode::kNft ? LoadNft(operations)
                                                     : LoadLegacy(family, std::move(operations));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace kipt::testing
