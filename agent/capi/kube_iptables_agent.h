/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps kubelet's iptables chains (KEP-3178) in place in one network namespace, for programs in C
 * and for languages that can call C. It is agent/node_agent.h with a stable binary interface:
 * within libkube-iptables-agent.so.0 nothing that is declared here changes or disappears.
 *
 *   struct kube_iptables_agent_options options = {.size = sizeof options};
 *   struct kube_iptables_agent* agent = NULL;
 *   struct kube_iptables_agent_error error = {0};
 *   if (kube_iptables_agent_create(&options, NULL, &agent, &error) != 0) {
 *     fprintf(stderr, "%s\n", error.message);
 *     kube_iptables_agent_error_clear(&error);
 *     return 1;
 *   }
 *   while (kube_iptables_agent_dispatch(agent, -1, &error) == 0) {}
 *
 * Threads. An agent belongs to the thread that created it. That thread makes every call that takes
 * the agent, except kube_iptables_agent_wake, and all callbacks run on it. A call from another
 * thread, or from a child after fork(2), is refused with FAILED_PRECONDITION. Different agents may
 * belong to different threads. Functions without an agent may be called by any thread at any time.
 * pthread_cancel(3) does not end a call; kube_iptables_agent_wake ends its wait. A signal does not.
 * Where the thread has ended, its agent cannot be freed any more.
 *
 * Children. Where the namespace has tables of iptables-legacy, or options.iptables_mode is that,
 * the process may have children, programs of iptables-legacy, each for options.program_deadline_ms
 * at most. A host program that ignores SIGCHLD, or waits for any child, breaks them.
 *
 * Memory. Where there is none for JSON that is being made, the process ends.
 *
 * Network namespaces. Without options.netns the agent works in the namespace that its thread is in
 * at kube_iptables_agent_create. The thread must stay there: in another one
 * kube_iptables_agent_dispatch and the functions that read the kernel are refused with
 * FAILED_PRECONDITION and change nothing. A runtime that moves tasks between threads (Go) must
 * lock the task to its thread first. With options.netns the thread's own namespace does not matter.
 *
 * Waiting. kube_iptables_agent_create, _dispatch, _sync_json, _plan_json and _audit_json wait, for
 * at most the times that agent/node_agent.h documents, and so does _set_options where the agent is
 * to write in a mode that it detects anew. All other functions return at once.
 *
 * Errors. Functions that can fail return 0 or a kube_iptables_agent_code. They also fill in
 * `error`, if it is not NULL. What `error` held before is overwritten without being freed. On
 * failure nothing else is written to: out-parameters keep their values.
 *
 * Handles. NULL is INVALID_ARGUMENT, and so is a handle that was freed, unless a newer agent has
 * got its address.
 *
 * Text is UTF-8 and ends with a zero byte. Text that the library returns contains no control
 * characters of other programs. Text that the caller passes in is copied during the call.
 *
 * Versions. A struct whose first field is `size` can grow. The caller sets `size` to sizeof of the
 * struct that it was compiled with, and all fields that it does not know to zero, which is every
 * field's default. A struct that is larger than the library's is accepted if what the library does
 * not know is zero, and is INVALID_ARGUMENT otherwise.
 */
#ifndef KIPT_AGENT_CAPI_KUBE_IPTABLES_AGENT_H_
#define KIPT_AGENT_CAPI_KUBE_IPTABLES_AGENT_H_

/* This is C. NOLINTBEGIN(modernize-deprecated-headers) */
#include <stddef.h>
#include <stdint.h>
/* NOLINTEND(modernize-deprecated-headers) */

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- errors ---- */

/* The numbers are those of absl::StatusCode and of gRPC. */
enum kube_iptables_agent_code {
  KUBE_IPTABLES_AGENT_OK = 0,
  KUBE_IPTABLES_AGENT_CANCELLED = 1,
  KUBE_IPTABLES_AGENT_UNKNOWN = 2,
  KUBE_IPTABLES_AGENT_INVALID_ARGUMENT = 3,
  KUBE_IPTABLES_AGENT_DEADLINE_EXCEEDED = 4,
  KUBE_IPTABLES_AGENT_NOT_FOUND = 5,
  KUBE_IPTABLES_AGENT_ALREADY_EXISTS = 6,
  KUBE_IPTABLES_AGENT_PERMISSION_DENIED = 7,
  KUBE_IPTABLES_AGENT_RESOURCE_EXHAUSTED = 8,
  KUBE_IPTABLES_AGENT_FAILED_PRECONDITION = 9,
  KUBE_IPTABLES_AGENT_ABORTED = 10,
  KUBE_IPTABLES_AGENT_OUT_OF_RANGE = 11,
  KUBE_IPTABLES_AGENT_UNIMPLEMENTED = 12,
  KUBE_IPTABLES_AGENT_INTERNAL = 13,
  KUBE_IPTABLES_AGENT_UNAVAILABLE = 14,
  KUBE_IPTABLES_AGENT_DATA_LOSS = 15,
  KUBE_IPTABLES_AGENT_UNAUTHENTICATED = 16
};

struct kube_iptables_agent_error {
  int32_t code; /* enum kube_iptables_agent_code */
  /* One line: what failed, and what to do. The caller's, to be freed with
   * kube_iptables_agent_error_clear. NULL after success, and where memory ran out. */
  char* message;
};

/* Frees the message, and sets both fields to zero. NULL is allowed. */
void kube_iptables_agent_error_clear(struct kube_iptables_agent_error* error);

/* "INVALID_ARGUMENT"; "UNKNOWN" for numbers that are not listed above. Never freed. */
const char* kube_iptables_agent_code_name(int code);

/* The release of the library that runs: "0.8.0". Never freed. */
const char* kube_iptables_agent_version(void);

/* Frees text that a function below returned. NULL is allowed. */
void kube_iptables_agent_string_free(char* text);

/* ---- options ---- */

enum kube_iptables_agent_mode {
  KUBE_IPTABLES_AGENT_MODE_AUTO = 0, /* the iptables that the node uses */
  KUBE_IPTABLES_AGENT_MODE_NFT = 1,
  KUBE_IPTABLES_AGENT_MODE_LEGACY = 2 /* iptables-legacy */
};

/* Flags of options.families. */
enum kube_iptables_agent_family {
  KUBE_IPTABLES_AGENT_FAMILIES_AUTO = 0, /* IPv4, and IPv6 where the namespace has it */
  KUBE_IPTABLES_AGENT_IPV4 = 1,
  KUBE_IPTABLES_AGENT_IPV6 = 2
};

struct kube_iptables_agent_gate {
  const char* name; /* "IPTablesOwnershipCleanup" */
  int32_t enabled;  /* 0 or 1 */
  int32_t reserved; /* 0 */
};

/* Two bits of the packet mark (0 to 31), or two connection labels (0 to 127). */
struct kube_iptables_agent_pair {
  int32_t masquerade;
  int32_t drop;
};

/* What is desired. Nothing else is read: no file, flag or variable. Each field means what the field
 * of the same name in NodeAgentOptions (agent/node_agent.h) means, except where noted. */
struct kube_iptables_agent_options {
  size_t size;                  /* sizeof(struct kube_iptables_agent_options) */
  const char* netns;            /* "/run/netns/NAME"; NULL: the calling thread's */
  const char* emulated_version; /* "1.27"; NULL: the newest with a gate that can be turned off */
  const struct kube_iptables_agent_gate* feature_gates; /* those not at their default */
  size_t feature_gate_count;
  const struct kube_iptables_agent_pair* bits;   /* NULL: kubelet's, 14 and 15 */
  const struct kube_iptables_agent_pair* labels; /* NULL: 114 and 115 */
  const char* host_root;                         /* NULL: the process's own root */
  const char* const* cni_conf_dirs;              /* absolute paths */
  size_t cni_conf_dir_count;                     /* 0: the known places of the node */
  int64_t sync_period_ms;                        /* 0: one minute */
  int64_t longest_retry_ms;                      /* 0: one second */
  int64_t program_deadline_ms;                   /* 0: 20 seconds */
  int32_t no_util_chains;      /* 1: make_iptables_util_chains is false, so no rule is touched */
  int32_t families;            /* flags of enum kube_iptables_agent_family */
  int32_t iptables_mode;       /* enum kube_iptables_agent_mode */
  int32_t poll;                /* 1: watch by polling; 0: by the kernel's events */
  int32_t observe;             /* 1: nothing is written */
  int32_t retire_stale_chains; /* 1: unclaimed stale chains are removed */
  int32_t hint_always;         /* 1: the hint is made also where iptables can hold no rule */
  int32_t reserved;            /* 0 */
};

/* ---- an agent ---- */

struct kube_iptables_agent;

enum kube_iptables_agent_severity {
  KUBE_IPTABLES_AGENT_INFO = 0,
  KUBE_IPTABLES_AGENT_WARNING = 1,
  KUBE_IPTABLES_AGENT_ERROR = 2
};

/* `severity` is an enum kube_iptables_agent_severity.
 *
 * Called by kube_iptables_agent_dispatch and _sync_json, never by another function. Callbacks may
 * call every function with this agent except those two and _free, which are refused. Each
 * _set_options is followed by a round, and so by an event. They must not throw, and not call
 * longjmp(3) or pthread_exit(3). Texts are the library's and end with the callback. */
struct kube_iptables_agent_handlers {
  size_t size;   /* sizeof(struct kube_iptables_agent_handlers) */
  void* context; /* the first argument of the callbacks; the library never reads it */
  /* At the end of every round: one line of JSON (deploy/library/c-api.md, "Events"). */
  void (*event)(void* context, const char* json, size_t length);
  /* One sentence for the operator, which no event reports. */
  void (*notice)(void* context, int32_t severity, const char* text);
};

/* Finds out which iptables is in use and opens it, and with retire_stale_chains retires what the
 * other mode holds. Writes nothing else: the first kube_iptables_agent_dispatch does.
 *
 * `options` may be NULL: all defaults. `handlers` may be NULL: no callbacks. Both are copied.
 *
 * INVALID_ARGUMENT: an option is wrong (messages name it as the program's flag), or `agent` is
 * NULL. NOT_FOUND, INVALID_ARGUMENT, PERMISSION_DENIED: options.netns does not exist, is no
 * network namespace, or cannot be entered. RESOURCE_EXHAUSTED: no memory, timer, thread or
 * descriptor. */
int kube_iptables_agent_create(const struct kube_iptables_agent_options* options,
                               const struct kube_iptables_agent_handlers* handlers,
                               struct kube_iptables_agent** agent,
                               struct kube_iptables_agent_error* error);

/* Frees the agent, and leaves the rules in place. NULL is allowed and does nothing.
 *
 * FAILED_PRECONDITION: another thread, or within a callback; the agent goes on.
 * INVALID_ARGUMENT: no such agent. */
int kube_iptables_agent_free(struct kube_iptables_agent* agent,
                             struct kube_iptables_agent_error* error);

/* A descriptor to poll for input; the agent's, which the caller must not close or read. -1 where
 * the handle is wrong, or from another thread. */
int kube_iptables_agent_fd(struct kube_iptables_agent* agent);

/* Waits until something is due, at most `timeout_ms` (0: not at all; -1: without limit), does it,
 * and returns. It does not wait in the first call after kube_iptables_agent_create, _set_options
 * and _sync_json, after which something may be due. A program with an event loop of its own
 * polls the descriptor and passes 0, also once after each of these three.
 *
 * INVALID_ARGUMENT: no such agent, or `timeout_ms` is below -1. FAILED_PRECONDITION: another
 * thread, another network namespace, or within a callback. RESOURCE_EXHAUSTED: no memory for a
 * round, which is done again soon; call again. UNKNOWN, INTERNAL: the event loop failed; free the
 * agent. A rule that cannot be written is no error: events report it. */
int kube_iptables_agent_dispatch(struct kube_iptables_agent* agent, int64_t timeout_ms,
                                 struct kube_iptables_agent_error* error);

/* Ends the wait of a kube_iptables_agent_dispatch that is in progress, or of the next one. The only
 * function with an agent that any thread may call. Not for signal handlers.
 *
 * INVALID_ARGUMENT: no such agent. FAILED_PRECONDITION: a child after fork(2). */
int kube_iptables_agent_wake(struct kube_iptables_agent* agent,
                             struct kube_iptables_agent_error* error);

/* From the next kube_iptables_agent_dispatch on, this is desired.
 *
 * INVALID_ARGUMENT: as kube_iptables_agent_create; the agent goes on as before.
 * FAILED_PRECONDITION: as NodeAgent::SetOptions: an option that is fixed at start has another
 * value, which needs another agent. */
int kube_iptables_agent_set_options(struct kube_iptables_agent* agent,
                                    const struct kube_iptables_agent_options* options,
                                    struct kube_iptables_agent_error* error);

/* ---- results, as JSON ----
 *
 * Each stores at `json` a text that the caller frees with kube_iptables_agent_string_free. The
 * fields' names are a promise (deploy/library/c-api.md); fields may be added.
 *
 * INVALID_ARGUMENT: no such agent, or `json` is NULL. FAILED_PRECONDITION: another thread.
 */

/* What the agent knows, without reading the kernel: readiness, families, findings, counts. */
int kube_iptables_agent_state_json(struct kube_iptables_agent* agent, char** json,
                                   struct kube_iptables_agent_error* error);

/* What the last round found and did, as `kube-iptables-agent sync --output=json`.
 * FAILED_PRECONDITION also before the first round. */
int kube_iptables_agent_report_json(struct kube_iptables_agent* agent, char** json,
                                    struct kube_iptables_agent_error* error);

/* One round now, whatever is due, with its callbacks: what it found and did, as above.
 * FAILED_PRECONDITION also in another network namespace, and within a callback. What the kernel
 * refuses is no error: the report has it. */
int kube_iptables_agent_sync_json(struct kube_iptables_agent* agent, char** json,
                                  struct kube_iptables_agent_error* error);

/* Reads the kernel, and changes nothing: what would be done, as `kube-iptables-agent plan
 * --output=json`. Other codes are those of reading: PERMISSION_DENIED, UNAVAILABLE, ... */
int kube_iptables_agent_plan_json(struct kube_iptables_agent* agent, char** json,
                                  struct kube_iptables_agent_error* error);

/* Reads all rules of all programs, and changes nothing: who depends on kubelet's chains, as
 * `kube-iptables-agent audit --output=json`. What cannot be read is a finding. */
int kube_iptables_agent_audit_json(struct kube_iptables_agent* agent, char** json,
                                   struct kube_iptables_agent_error* error);

#pragma GCC visibility pop

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KIPT_AGENT_CAPI_KUBE_IPTABLES_AGENT_H_ */
