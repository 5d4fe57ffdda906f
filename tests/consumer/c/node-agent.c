/* SPDX-License-Identifier: Apache-2.0
 *
 * node-agent SETTINGS: a node agent in C that keeps kubelet's iptables chains in place in its network
 * namespace. SETTINGS is a file with one gate a line ("IPTablesOwnershipCleanup=false"), which SIGHUP
 * reads again. SIGTERM ends it and leaves the rules. Its event loop is poll(2).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <kube_iptables_agent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { kMostGates = 16 };

struct settings {
  struct kube_iptables_agent_gate gates[kMostGates];
  char names[kMostGates][64];
  size_t count;
};

/* 0, or -1 with errno. */
static int read_settings(const char* path, struct settings* settings) {
  FILE* const file = fopen(path, "re");
  char value[8];
  if (file == NULL) return -1;
  memset(settings, 0, sizeof *settings);
  while (settings->count < kMostGates &&
         fscanf(file, " %63[^=\n]=%7s", settings->names[settings->count], value) == 2) {
    settings->gates[settings->count].name = settings->names[settings->count];
    settings->gates[settings->count].enabled = strcmp(value, "true") == 0;
    ++settings->count;
  }
  fclose(file);
  return 0;
}

static struct kube_iptables_agent_options options_from(const struct settings* settings) {
  const struct kube_iptables_agent_options options = {
      .size = sizeof options,
      .feature_gates = settings->gates,
      .feature_gate_count = settings->count,
      .iptables_mode = KUBE_IPTABLES_AGENT_MODE_NFT,
  };
  return options;
}

static void on_event(void* context, const char* json, size_t length) {
  (void)context;
  printf("event: %.*s\n", (int)length, json);
}

static void notice(void* context, int32_t severity, const char* text) {
  (void)context;
  printf("notice %d: %s\n", (int)severity, text);
}

/* `code`; prints and frees the error. */
static int checked(const char* what, int code, struct kube_iptables_agent_error* error) {
  if (code != 0) printf("%s: %s\n", what, error->message != NULL ? error->message : "out of memory");
  kube_iptables_agent_error_clear(error);
  return code;
}

static void read_again(struct kube_iptables_agent* agent, const char* path) {
  struct settings settings;
  struct kube_iptables_agent_error error = {0};
  if (read_settings(path, &settings) != 0) {
    printf("settings: %s: %s\n", path, strerror(errno));
    return;
  }
  const struct kube_iptables_agent_options options = options_from(&settings);
  if (checked("settings", kube_iptables_agent_set_options(agent, &options, &error), &error) == 0) {
    printf("settings: read again\n");
  }
}

static int run(struct kube_iptables_agent* agent, const char* path, int signals) {
  struct kube_iptables_agent_error error = {0};
  struct pollfd readable[] = {{.fd = kube_iptables_agent_fd(agent), .events = POLLIN},
                              {.fd = signals, .events = POLLIN}};
  for (;;) {
    if (checked("dispatch", kube_iptables_agent_dispatch(agent, 0, &error), &error) != 0) return 1;
    fflush(stdout);
    poll(readable, 2, -1);
    struct signalfd_siginfo signal;
    if ((readable[1].revents & POLLIN) == 0) continue;
    if (read(signals, &signal, sizeof signal) != sizeof signal) return 1;
    if (signal.ssi_signo == SIGTERM) return 0;
    read_again(agent, path);
  }
}

int main(int argc, char** argv) {
  struct settings settings;
  if (argc != 2 || read_settings(argv[1], &settings) != 0) {
    fprintf(stderr, "usage: node-agent SETTINGS\n");
    return 64;
  }
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGHUP);
  sigaddset(&mask, SIGTERM);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  const struct kube_iptables_agent_options options = options_from(&settings);
  const struct kube_iptables_agent_handlers handlers = {
      .size = sizeof handlers, .event = on_event, .notice = notice};
  struct kube_iptables_agent* agent = NULL;
  struct kube_iptables_agent_error error = {0};
  if (checked("create", kube_iptables_agent_create(&options, &handlers, &agent, &error), &error) != 0) {
    return 1;
  }
  int status = run(agent, argv[1], signalfd(-1, &mask, SFD_CLOEXEC));
  if (checked("free", kube_iptables_agent_free(agent, &error), &error) != 0) status = 1;
  printf("stopped\n");
  return status;
}
