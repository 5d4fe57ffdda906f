/* SPDX-License-Identifier: Apache-2.0
 *
 * The C API, misused in every way that it promises to survive. Run as root: it makes network
 * namespaces of its own. Plain C11, so that it also proves that the header is C.
 */
#define _GNU_SOURCE
#include <kube_iptables_agent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct kube_iptables_agent Agent;
typedef struct kube_iptables_agent_error Error;
typedef struct kube_iptables_agent_options Options;
typedef struct kube_iptables_agent_handlers Handlers;

static const char* running = "";
static int failures = 0;

static void expect(int line, int holds, const char* what) {
  if (holds) return;
  ++failures;
  fprintf(stderr, "capi_misuse.c:%d: %s: %s\n", line, running, what);
}
#define EXPECT(condition) expect(__LINE__, (condition), #condition)

/* `code` is `expected`, and `error` agrees; frees it. */
static void expect_code(int line, int code, int expected, Error* error) {
  if (code != expected) {
    fprintf(stderr, "expected %s, not %s: %s\n", kube_iptables_agent_code_name(expected),
            kube_iptables_agent_code_name(code), error->message ? error->message : "");
  }
  expect(line, code == expected, "the code");
  expect(line, error->code == code, "error.code is the code");
  expect(line, (error->message == NULL) == (code == 0), "a message where there is an error");
  for (const char* c = error->message; c != NULL && *c != '\0'; ++c) {
    expect(line, (unsigned char)*c >= 0x20 && *c != 0x7f, "no control character in the message");
  }
  kube_iptables_agent_error_clear(error);
  expect(line, error->code == 0 && error->message == NULL, "cleared");
}
#define EXPECT_CODE(expected, call) \
  expect_code(__LINE__, (call), KUBE_IPTABLES_AGENT_##expected, &error)

static Options defaults(void) {
  Options options = {.size = sizeof options, .iptables_mode = KUBE_IPTABLES_AGENT_MODE_NFT};
  return options;
}
static Agent* create(const Options* options, const Handlers* handlers) {
  Agent* agent = NULL;
  Error error = {0};
  EXPECT_CODE(OK, kube_iptables_agent_create(options, handlers, &agent, &error));
  EXPECT(agent != NULL);
  return agent;
}
static Agent* create_default(void) {
  const Options options = defaults();
  return create(&options, NULL);
}
static void free_agent(Agent* agent) {
  Error error = {0};
  EXPECT_CODE(OK, kube_iptables_agent_free(agent, &error));
}

/* ---- every function that takes an agent ---- */

static int do_dispatch(Agent* a, Error* e) { return kube_iptables_agent_dispatch(a, 0, e); }
static int do_set_options(Agent* a, Error* e) {
  const Options options = defaults();
  return kube_iptables_agent_set_options(a, &options, e);
}
typedef int (*Json)(Agent*, char**, Error*);
static int json_of(Json function, Agent* a, Error* e) {
  char* const before = (char*)&failures;
  char* json = before;
  const int code = function(a, &json, e);
  if (code != 0) {
    EXPECT(json == before);
  } else {
    EXPECT(json[0] == '{');
    kube_iptables_agent_string_free(json);
  }
  return code;
}
static int do_state(Agent* a, Error* e) { return json_of(kube_iptables_agent_state_json, a, e); }
static int do_report(Agent* a, Error* e) { return json_of(kube_iptables_agent_report_json, a, e); }
static int do_sync(Agent* a, Error* e) { return json_of(kube_iptables_agent_sync_json, a, e); }
static int do_plan(Agent* a, Error* e) { return json_of(kube_iptables_agent_plan_json, a, e); }
static int do_audit(Agent* a, Error* e) { return json_of(kube_iptables_agent_audit_json, a, e); }

static const struct {
  const char* name;
  int (*call)(Agent*, Error*);
  int any_thread;
  int any_namespace;
  int in_callback;
} kCalls[] = {
    {"dispatch", do_dispatch, 0, 0, 0},
    {"set_options", do_set_options, 0, 0, 1},
    {"state_json", do_state, 0, 1, 1},
    {"report_json", do_report, 0, 1, 1},
    {"sync_json", do_sync, 0, 0, 0},
    {"plan_json", do_plan, 0, 0, 1},
    {"audit_json", do_audit, 0, 0, 1},
    {"wake", kube_iptables_agent_wake, 1, 1, 1},
    {"free", kube_iptables_agent_free, 0, 1, 0},
};
enum { kCallCount = sizeof kCalls / sizeof kCalls[0] };

static void refuse_all(Agent* agent) {
  Error error = {0};
  for (int i = 0; i < kCallCount; ++i) {
    if (agent == NULL && kCalls[i].call == kube_iptables_agent_free) continue;
    EXPECT_CODE(INVALID_ARGUMENT, kCalls[i].call(agent, &error));
    EXPECT(kCalls[i].call(agent, NULL) == KUBE_IPTABLES_AGENT_INVALID_ARGUMENT);
  }
  EXPECT(kube_iptables_agent_fd(agent) == -1);
}

static void null_is_refused(void) {
  Error error = {0};
  refuse_all(NULL);
  EXPECT_CODE(OK, kube_iptables_agent_free(NULL, &error));
  EXPECT_CODE(INVALID_ARGUMENT, kube_iptables_agent_create(NULL, NULL, NULL, &error));
  kube_iptables_agent_error_clear(NULL);
  kube_iptables_agent_string_free(NULL);
  Agent* const agent = create_default();
  Json functions[] = {kube_iptables_agent_state_json, kube_iptables_agent_report_json,
                      kube_iptables_agent_sync_json, kube_iptables_agent_plan_json,
                      kube_iptables_agent_audit_json};
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i)
    EXPECT_CODE(INVALID_ARGUMENT, functions[i](agent, NULL, &error));
  free_agent(agent);
}

static void what_is_no_handle_is_refused(void) {
  long on_the_stack[8] = {0};
  refuse_all((Agent*)on_the_stack);
  refuse_all((Agent*)(uintptr_t)1);
}

static void freed_handle_is_refused(void) {
  Agent* const agent = create_default();
  free_agent(agent);
  refuse_all(agent);
}

static void* refuse_in_thread(void* data) {
  Agent* const agent = data;
  Error error = {0};
  for (int i = 0; i < kCallCount; ++i) {
    if (kCalls[i].any_thread) {
      EXPECT_CODE(OK, kCalls[i].call(agent, &error));
    } else {
      EXPECT_CODE(FAILED_PRECONDITION, kCalls[i].call(agent, &error));
    }
  }
  EXPECT(kube_iptables_agent_fd(agent) == -1);
  return NULL;
}

static void another_thread_is_refused(void) {
  Error error = {0};
  Agent* const agent = create_default();
  pthread_t thread;
  pthread_create(&thread, NULL, refuse_in_thread, agent);
  pthread_join(thread, NULL);
  EXPECT_CODE(OK, kube_iptables_agent_dispatch(agent, 0, &error));
  free_agent(agent);
}

static void expect_in_child(void (*check)(Agent*), Agent* agent) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    const int before = failures;
    check(agent);
    _exit(failures == before ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT(status == 0);
}

static void refuse_in_child(Agent* agent) {
  Error error = {0};
  for (int i = 0; i < kCallCount; ++i)
    EXPECT_CODE(FAILED_PRECONDITION, kCalls[i].call(agent, &error));
  EXPECT(kube_iptables_agent_fd(agent) == -1);
}

static void child_after_fork_is_refused(void) {
  Error error = {0};
  Agent* const agent = create_default();
  expect_in_child(refuse_in_child, agent);
  EXPECT_CODE(OK, kube_iptables_agent_dispatch(agent, 0, &error));
  free_agent(agent);
}

/* The first process of every PID namespace is number 1 there. */
static void have_a_child_of_the_same_number(Agent* unused) {
  (void)unused;
  Agent* const agent = getpid() == 1 ? create_default() : NULL;
  if (unshare(CLONE_NEWPID) != 0) perror("unshare");
  expect_in_child(agent == NULL ? have_a_child_of_the_same_number : refuse_in_child, agent);
}

static void child_of_the_same_number_is_refused(void) {
  expect_in_child(have_a_child_of_the_same_number, NULL);
}

static void* be_cancelled(void* calls) {
  Error error = {0};
  Agent* const agent = create_default();
  pthread_cancel(pthread_self());
  for (int i = 0; i < kCallCount; ++i, ++*(int*)calls)
    EXPECT_CODE(OK, kCalls[i].call(agent, &error));
  pthread_testcancel();
  return NULL;
}

static void cancellation_waits_for_the_end_of_a_call(void) {
  int calls = 0;
  void* result = NULL;
  pthread_t thread;
  pthread_create(&thread, NULL, be_cancelled, &calls);
  pthread_join(thread, &result);
  EXPECT(calls == kCallCount && result == PTHREAD_CANCELED);
}

/* ---- reports ---- */

static void a_report_is_of_the_options_of_its_round(void) {
  Error error = {0};
  Options options = defaults();
  options.families = KUBE_IPTABLES_AGENT_IPV4;
  Agent* const agent = create(&options, NULL);
  EXPECT_CODE(OK, kube_iptables_agent_dispatch(agent, 0, &error));
  char* reports[2] = {NULL, NULL};
  EXPECT_CODE(OK, kube_iptables_agent_report_json(agent, &reports[0], &error));
  options.families |= KUBE_IPTABLES_AGENT_IPV6;
  options.emulated_version = "1.27";
  EXPECT_CODE(OK, kube_iptables_agent_set_options(agent, &options, &error));
  EXPECT_CODE(OK, kube_iptables_agent_report_json(agent, &reports[1], &error));
  EXPECT(strcmp(reports[0], reports[1]) == 0);
  for (int i = 0; i < 2; ++i) kube_iptables_agent_string_free(reports[i]);
  free_agent(agent);
}

/* ---- structs of other releases ---- */

static void sizes_of_other_releases(void) {
  /* As a later release's struct: with fields that this one does not know. */
  struct {
    Options known;
    int64_t unknown[2];
  } later;
  const struct {
    size_t size;
    int64_t unknown;
    int accepted;
  } rows[] = {
      {sizeof later, 0, 1},
      {sizeof later, 1, 0},
      {sizeof later - 8, 0, 1},
      {sizeof(Options), 1, 1}, /* beyond what `size` covers nothing is read */
      {sizeof(Options) - 8, 0, 1},
      {2 * sizeof(size_t), 0, 1}, /* a very old release's */
      {sizeof(size_t), 0, 1},
      {0, 0, 0},
      {1, 0, 0},
      {sizeof(size_t) - 1, 0, 0},
      {sizeof(Options) + 4, 0, 0},
      {4104, 0, 0},
      {SIZE_MAX, 0, 0},
      {SIZE_MAX - 7, 0, 0},
  };
  Error error = {0};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    memset(&later, 0, sizeof later);
    later.known.size = rows[i].size;
    later.unknown[1] = rows[i].unknown;
    if (rows[i].size == sizeof later - 8) later.unknown[1] = 1;
    Agent* agent = NULL;
    if (rows[i].accepted) {
      EXPECT_CODE(OK, kube_iptables_agent_create(&later.known, NULL, &agent, &error));
      free_agent(agent);
    } else {
      EXPECT_CODE(INVALID_ARGUMENT, kube_iptables_agent_create(&later.known, NULL, &agent, &error));
      EXPECT(agent == NULL);
    }
  }
  struct {
    Handlers known;
    void* unknown;
  } handlers;
  memset(&handlers, 0, sizeof handlers);
  Agent* agent = NULL;
  EXPECT_CODE(INVALID_ARGUMENT, kube_iptables_agent_create(NULL, &handlers.known, &agent, &error));
  handlers.known.size = sizeof handlers;
  EXPECT_CODE(OK, kube_iptables_agent_create(NULL, &handlers.known, &agent, &error));
  free_agent(agent);
  handlers.unknown = &handlers;
  EXPECT_CODE(INVALID_ARGUMENT, kube_iptables_agent_create(NULL, &handlers.known, &agent, &error));
  EXPECT(kube_iptables_agent_free(agent, NULL) == KUBE_IPTABLES_AGENT_INVALID_ARGUMENT);
}

/* ---- values ---- */

static const struct kube_iptables_agent_gate kNamelessGate = {.name = NULL, .enabled = 1};
static const struct kube_iptables_agent_gate kUnknownGate = {.name = "NoSuch\033[31mGate"};
static const struct kube_iptables_agent_gate kHalfGate = {.name = "IPTablesOwnershipCleanup",
                                                          .enabled = 2};
static const struct kube_iptables_agent_gate kLaterGate = {.name = "IPTablesOwnershipCleanup",
                                                           .reserved = 1};
static const struct kube_iptables_agent_pair kBadBits = {32, 15};
static const struct kube_iptables_agent_pair kBadLabels = {114, 128};
static const char* const kNullDirectory[] = {NULL};

static void wrong_values_are_refused(void) {
  const struct {
    const char* name;
    Options options;
    int code;
  } rows[] = {
#define ROW(field, ...) {#field, {.size = sizeof(Options), .field = __VA_ARGS__}, 3}
      ROW(emulated_version, "1"),
      ROW(emulated_version, "\xff\xfe"),
      ROW(feature_gate_count, 1),
      ROW(feature_gates, &kNamelessGate, .feature_gate_count = 1),
      ROW(feature_gates, &kUnknownGate, .feature_gate_count = 1),
      ROW(feature_gates, &kHalfGate, .feature_gate_count = 1),
      ROW(feature_gates, &kLaterGate, .feature_gate_count = 1),
      ROW(feature_gate_count, SIZE_MAX),
      ROW(bits, &kBadBits),
      ROW(labels, &kBadLabels),
      ROW(cni_conf_dir_count, 1),
      ROW(cni_conf_dirs, kNullDirectory, .cni_conf_dir_count = 1),
      ROW(host_root, "/no/such/root"),
      ROW(sync_period_ms, -1),
      ROW(sync_period_ms, 999),
      ROW(sync_period_ms, INT64_MAX),
      ROW(longest_retry_ms, INT64_MIN),
      ROW(program_deadline_ms, -5),
      ROW(no_util_chains, 2),
      ROW(families, 4),
      ROW(families, -1),
      ROW(iptables_mode, 3),
      ROW(iptables_mode, -1),
      ROW(poll, 7),
      ROW(observe, -1),
      ROW(retire_stale_chains, 2),
      ROW(hint_always, 2),
      ROW(reserved, 1),
      ROW(netns, "/dev/null"),
#undef ROW
      {"no namespace", {.size = sizeof(Options), .netns = "/no\nsuch\033[2Jnamespace"}, 5},
  };
  Error error = {0};
  Agent* const good = create_default();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    Agent* agent = NULL;
    running = rows[i].name;
    const int refused = kube_iptables_agent_create(&rows[i].options, NULL, &agent, &error);
    expect_code(__LINE__, refused, rows[i].code, &error);
    EXPECT(agent == NULL);
    const int code = kube_iptables_agent_set_options(good, &rows[i].options, &error);
    EXPECT(code == KUBE_IPTABLES_AGENT_INVALID_ARGUMENT ||
           code == KUBE_IPTABLES_AGENT_FAILED_PRECONDITION);
    kube_iptables_agent_error_clear(&error);
  }
  EXPECT_CODE(INVALID_ARGUMENT, kube_iptables_agent_dispatch(good, -2, &error));
  EXPECT_CODE(INVALID_ARGUMENT, kube_iptables_agent_dispatch(good, INT64_MIN, &error));
  EXPECT_CODE(OK, kube_iptables_agent_dispatch(good, 0, &error));
  free_agent(good);
}

/* ---- callbacks ---- */

struct Seen {
  Agent* agent;
  int events;
};

static void misuse_in_callback(void* context, const char* json, size_t length) {
  struct Seen* const seen = context;
  Error error = {0};
  EXPECT(json[0] == '{' && strlen(json) == length);
  if (seen->events++ != 0) return; /* each set_options is followed by a round */
  for (int i = 0; i < kCallCount; ++i) {
    if (kCalls[i].in_callback) {
      EXPECT_CODE(OK, kCalls[i].call(seen->agent, &error));
    } else {
      EXPECT_CODE(FAILED_PRECONDITION, kCalls[i].call(seen->agent, &error));
    }
  }
}

static void callbacks_may_not_dispatch_or_free(void) {
  struct Seen seen = {0};
  const Handlers handlers = {
      .size = sizeof handlers, .context = &seen, .event = misuse_in_callback};
  const Options options = defaults();
  Error error = {0};
  seen.agent = create(&options, &handlers);
  EXPECT_CODE(FAILED_PRECONDITION, do_report(seen.agent, &error)); /* no round yet */
  EXPECT(seen.events == 0);
  EXPECT_CODE(OK, kube_iptables_agent_dispatch(seen.agent, -1, &error));
  EXPECT(seen.events > 0);
  EXPECT_CODE(OK, do_report(seen.agent, &error));
  free_agent(seen.agent);
}

/* ---- namespaces ---- */

static void* move_to_another_namespace(void* unused) {
  (void)unused;
  Error error = {0};
  Agent* const agent = create_default();
  if (unshare(CLONE_NEWNET) != 0) perror("unshare");
  for (int i = 0; i < kCallCount; ++i) {
    if (kCalls[i].any_namespace) continue;
    EXPECT_CODE(FAILED_PRECONDITION, kCalls[i].call(agent, &error));
  }
  EXPECT_CODE(OK, do_state(agent, &error));
  EXPECT_CODE(FAILED_PRECONDITION, do_report(agent, &error)); /* no round, for nothing was done */
  free_agent(agent);
  return NULL;
}

static void another_namespace_is_refused(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, move_to_another_namespace, NULL);
  pthread_join(thread, NULL);
}

/* ---- waiting ---- */

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void* wake_soon(void* data) {
  Error error = {0};
  const struct timespec soon = {.tv_nsec = 50 * 1000 * 1000};
  nanosleep(&soon, NULL);
  EXPECT_CODE(OK, kube_iptables_agent_wake(data, &error));
  return NULL;
}

static void waits_end(void) {
  Error error = {0};
  Agent* const agent = create_default();
  /* The first call does not wait, and after it little is due until the next minute. */
  EXPECT_CODE(OK, kube_iptables_agent_dispatch(agent, -1, &error));
  int64_t start = now_ms();
  while (now_ms() - start < 10000) { /* our own commits are noticed, too */
    const int64_t begin = now_ms();
    EXPECT_CODE(OK, kube_iptables_agent_dispatch(agent, 100, &error));
    if (now_ms() - begin >= 100) break;
  }
  EXPECT(now_ms() - start < 10000);
  pthread_t thread;
  pthread_create(&thread, NULL, wake_soon, agent);
  start = now_ms();
  EXPECT_CODE(OK, kube_iptables_agent_dispatch(agent, -1, &error));
  EXPECT(now_ms() - start < 30000); /* not the minute of the sync period */
  pthread_join(thread, NULL);
  /* Before the wait it ends the next one, and only that. */
  EXPECT_CODE(OK, kube_iptables_agent_wake(agent, &error));
  EXPECT_CODE(OK, kube_iptables_agent_dispatch(agent, -1, &error));
  start = now_ms();
  EXPECT_CODE(OK, kube_iptables_agent_dispatch(agent, 50, &error));
  EXPECT(now_ms() - start >= 50);
  /* A round may have set timers, which the first call after it arms. */
  char* json = NULL;
  EXPECT_CODE(OK, kube_iptables_agent_sync_json(agent, &json, &error));
  kube_iptables_agent_string_free(json);
  start = now_ms();
  EXPECT_CODE(OK, kube_iptables_agent_dispatch(agent, -1, &error));
  EXPECT(now_ms() - start < 10000);
  free_agent(agent);
}

static void texts_that_are_never_freed(void) {
  EXPECT(strcmp(kube_iptables_agent_code_name(3), "INVALID_ARGUMENT") == 0);
  EXPECT(strcmp(kube_iptables_agent_code_name(16), "UNAUTHENTICATED") == 0);
  EXPECT(strcmp(kube_iptables_agent_code_name(17), "UNKNOWN") == 0);
  EXPECT(strcmp(kube_iptables_agent_code_name(-1), "UNKNOWN") == 0);
  EXPECT(strchr(kube_iptables_agent_version(), '.') != NULL);
}

static const struct {
  const char* name;
  void (*run)(void);
} kTests[] = {
    {"null is refused", null_is_refused},
    {"what is no handle is refused", what_is_no_handle_is_refused},
    {"freed handle is refused", freed_handle_is_refused},
    {"another thread is refused", another_thread_is_refused},
    {"child after fork is refused", child_after_fork_is_refused},
    {"child of the same number is refused", child_of_the_same_number_is_refused},
    {"a report is of the options of its round", a_report_is_of_the_options_of_its_round},
    {"sizes of other releases", sizes_of_other_releases},
    {"wrong values are refused", wrong_values_are_refused},
    {"callbacks may not dispatch or free", callbacks_may_not_dispatch_or_free},
    {"another namespace is refused", another_namespace_is_refused},
    {"waits end", waits_end},
    {"texts that are never freed", texts_that_are_never_freed},
    {"cancellation waits for the end of a call", cancellation_waits_for_the_end_of_a_call},
};

int main(void) {
  if (unshare(CLONE_NEWNET) != 0) {
    perror("capi_misuse: unshare: run this as root");
    return 1;
  }
  for (size_t i = 0; i < sizeof kTests / sizeof kTests[0]; ++i) {
    const int before = failures;
    running = kTests[i].name;
    kTests[i].run();
    printf("%s: %s\n", failures == before ? "ok" : "FAILED", kTests[i].name);
  }
  return failures == 0 ? 0 : 1;
}
