// SPDX-License-Identifier: Apache-2.0

package kubeiptables

/*
#include <kube_iptables_agent.h>
*/
import "C"

// Code is why a call failed. It is an error itself, for errors.Is(err, kubeiptables.NotFound).
type Code int

// The codes that the C API documents.
const (
	Unknown            Code = C.KUBE_IPTABLES_AGENT_UNKNOWN
	InvalidArgument    Code = C.KUBE_IPTABLES_AGENT_INVALID_ARGUMENT
	NotFound           Code = C.KUBE_IPTABLES_AGENT_NOT_FOUND
	PermissionDenied   Code = C.KUBE_IPTABLES_AGENT_PERMISSION_DENIED
	ResourceExhausted  Code = C.KUBE_IPTABLES_AGENT_RESOURCE_EXHAUSTED
	FailedPrecondition Code = C.KUBE_IPTABLES_AGENT_FAILED_PRECONDITION
	Aborted            Code = C.KUBE_IPTABLES_AGENT_ABORTED
	Internal           Code = C.KUBE_IPTABLES_AGENT_INTERNAL
	Unavailable        Code = C.KUBE_IPTABLES_AGENT_UNAVAILABLE
)

// Error is the code's name: "NOT_FOUND".
func (c Code) Error() string { return C.GoString(C.kube_iptables_agent_code_name(C.int(c))) }

// Error is a failed call of the C API.
type Error struct {
	Code    Code
	Message string // one line: what failed, and what to do
}

func (e *Error) Error() string { return e.Code.Error() + ": " + e.Message }

// Unwrap is the code.
func (e *Error) Unwrap() error { return e.Code }

// result is nil for 0. Frees the message.
func result(code C.int, failure *C.struct_kube_iptables_agent_error) error {
	if code == 0 {
		return nil
	}
	defer C.kube_iptables_agent_error_clear(failure)
	return &Error{Code: Code(code), Message: C.GoString(failure.message)}
}
