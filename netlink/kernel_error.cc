// SPDX-License-Identifier: Apache-2.0
#include "netlink/kernel_error.h"

#include <cerrno>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace kipt::netlink {
namespace {

struct Row {
  int error_number;
  absl::StatusCode code;
  const char* advice;
};

constexpr char kNeedsNetAdmin[] =
    "needs CAP_NET_ADMIN in the user namespace that owns the network namespace";

constexpr Row kRows[] = {
    {EPERM, absl::StatusCode::kPermissionDenied, kNeedsNetAdmin},
    {EACCES, absl::StatusCode::kPermissionDenied, kNeedsNetAdmin},
    {ENOENT, absl::StatusCode::kNotFound,
     "the table, chain, rule or jump target does not exist, or the kernel lacks the module of a "
     "match or target (nft_compat, xt_*)"},
    {EINVAL, absl::StatusCode::kInvalidArgument,
     "the kernel does not allow this here, or knows another layout of it"},
    {ERANGE, absl::StatusCode::kInvalidArgument, "a number is out of range"},
    {EOVERFLOW, absl::StatusCode::kInvalidArgument, "a number is out of range"},
    {ENAMETOOLONG, absl::StatusCode::kInvalidArgument, "a name is too long"},
    {EMSGSIZE, absl::StatusCode::kInvalidArgument, "the request is too large for the socket"},
    // Which of the two means a circle depends on the kernel.
    {ELOOP, absl::StatusCode::kFailedPrecondition, "chains would jump in a circle"},
    {EMLINK, absl::StatusCode::kFailedPrecondition, "chains would jump in a circle, or too deep"},
    {EBUSY, absl::StatusCode::kFailedPrecondition,
     "it is in use: rules jump to the chain, or it is not empty"},
    {EEXIST, absl::StatusCode::kFailedPrecondition, "something else of that name exists"},
    {EOPNOTSUPP, absl::StatusCode::kFailedPrecondition,
     "the kernel cannot do this, or the chain exists without its hook or on another one"},
    {ERESTART, absl::StatusCode::kAborted, "the ruleset has changed since it was read"},
    {EINTR, absl::StatusCode::kAborted, "interrupted"},
    {ENOMEM, absl::StatusCode::kResourceExhausted, "the kernel is out of memory"},
    {ENOBUFS, absl::StatusCode::kResourceExhausted, "the socket's receive buffer is full"},
    {ENFILE, absl::StatusCode::kResourceExhausted, "too many are open"},
    {EMFILE, absl::StatusCode::kResourceExhausted, "too many are open"},
    {ENOSPC, absl::StatusCode::kResourceExhausted, ""},
    {EPROTONOSUPPORT, absl::StatusCode::kUnavailable, "this kernel has no netfilter netlink"},
    {EAFNOSUPPORT, absl::StatusCode::kUnavailable, "this kernel has no netlink for this family"},
    {ETIMEDOUT, absl::StatusCode::kDeadlineExceeded, "the kernel did not answer"},
};

// Also the type URL under which Status keeps it.
constexpr char kMissingExtension[] = "kipt.netlink/missing-extension";
constexpr char kChainInUse[] = "kipt.netlink/chain-in-use";
constexpr char kWriteRefused[] = "kipt.netlink/write-refused";

std::optional<std::string> Payload(const absl::Status& status, const char* type) {
  const absl::optional<absl::Cord> payload = status.GetPayload(type);
  return payload ? std::optional<std::string>(std::string(*payload)) : std::nullopt;
}

}  // namespace

absl::Status KernelError(int error_number, absl::string_view action, absl::string_view advice) {
  Row row = {error_number, absl::StatusCode::kUnknown, ""};
  for (const Row& known : kRows) {
    if (known.error_number == error_number) row = known;
  }
  if (advice.empty()) advice = row.advice;
  // ERESTART reaches programs only through nf_tables; strerror's words for it mislead.
  std::string message =
      absl::StrCat(action, ": ",
                   error_number == ERESTART ? std::string("ERESTART")
                                            : std::generic_category().message(error_number));
  if (!advice.empty()) absl::StrAppend(&message, " (", advice, ")");
  return absl::Status(row.code, message);
}

void SetMissingExtension(absl::Status& status, absl::string_view extension) {
  status.SetPayload(kMissingExtension, absl::Cord(extension));
}

std::optional<std::string> MissingExtension(const absl::Status& status) {
  return Payload(status, kMissingExtension);
}

void SetWriteRefused(absl::Status& status) { status.SetPayload(kWriteRefused, absl::Cord()); }

bool IsWriteRefused(const absl::Status& status) {
  return status.GetPayload(kWriteRefused).has_value();
}

void SetChainInUse(absl::Status& status, const ChainId& chain) {
  status.SetPayload(kChainInUse, absl::Cord(ToString(chain)));
}

std::optional<std::string> ChainInUse(const absl::Status& status) {
  return Payload(status, kChainInUse);
}

}  // namespace kipt::netlink
