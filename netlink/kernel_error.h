// SPDX-License-Identifier: Apache-2.0
//
// The kernel's errno as absl::Status: what an error of nf_tables means, and what to do about it.
#ifndef KIPT_NETLINK_KERNEL_ERROR_H_
#define KIPT_NETLINK_KERNEL_ERROR_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

// `error_number` is positive. The message is "ACTION: strerror (what to do)"; `action` names
// everything the operation was about. `advice` replaces the table's own where the caller knows
// more.
//
//   EPERM, EACCES                         PermissionDenied
//   ENOENT                                NotFound
//   EINVAL, EMSGSIZE, ENAMETOOLONG, ...   InvalidArgument
//   EBUSY, EEXIST, EOPNOTSUPP, ELOOP, ... FailedPrecondition
//   ERESTART, EINTR                       Aborted: nothing was done, read again
//   ENOMEM, ENOBUFS, ENFILE, ...          ResourceExhausted
//   EPROTONOSUPPORT, EAFNOSUPPORT         Unavailable: the kernel has no netfilter netlink
//   ETIMEDOUT                             DeadlineExceeded
//   others                                Unknown
absl::Status KernelError(int error_number, absl::string_view action, absl::string_view advice = "");

// Marks `status` as caused by an xtables match or target that the kernel or iptables-legacy lacks.
// A kernel without nft_compat (RHEL 10 class) has none.
void SetMissingExtension(absl::Status& status, absl::string_view extension);

// The extension ("conntrack", "MARK") that the kernel lacks, where that is why it refused.
std::optional<std::string> MissingExtension(const absl::Status& status);

// ConnLabelMatch's. A kernel may lack this one alone (CONFIG_NETFILTER_XT_MATCH_CONNLABEL).
inline constexpr char kConnLabelExtension[] = "connlabel";

// Marks `status` as a request that was refused although nf_tables or iptables-legacy would have let
// this process make it: by a security module, a system call filter, or a table's owner.
void SetWriteRefused(absl::Status& status);
bool IsWriteRefused(const absl::Status& status);

// What to do about a security module or a system call filter.
inline constexpr char kGuardAdvice[] =
    "a security module (SELinux, a BPF LSM) or a system call filter (seccomp) refuses it, whatever "
    "capabilities this process has; allow this program there";

// Marks `status` as caused by a chain to be deleted that a rule or a map's verdict refers to.
void SetChainInUse(absl::Status& status, const ChainId& chain);

// ToString of that chain, where that is why the kernel refused.
std::optional<std::string> ChainInUse(const absl::Status& status);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_KERNEL_ERROR_H_
