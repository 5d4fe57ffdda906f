// SPDX-License-Identifier: Apache-2.0

// Package kubeiptables keeps kubelet's iptables chains (KEP-3178) in place in one network namespace.
// It is a binding of the C API, kube_iptables_agent.h, which documents options, errors and waiting.
//
//	agent, err := kubeiptables.Start(ctx, kubeiptables.Options{})
//	if err != nil { ... }
//	for event := range agent.Events() { ... }  // until ctx is done
//	return agent.Wait()
//
// # Threads and network namespaces
//
// The C API belongs to one thread, and without Options.Netns works in that thread's network namespace.
// So Start locks a new thread, which only this agent uses, and all calls run there. The methods of
// Agent may be called by any goroutine.
//
// Go starts threads from one that never left the process's namespace. A goroutine that has entered
// another one (runtime.LockOSThread, then setns(2)) must name it in Options.Netns, for example as
// /proc/self/task/TID/ns/net with its own TID. Start without that is refused with FailedPrecondition
// where the calling thread's namespace is not the new thread's, and changes nothing.
package kubeiptables

/*
#cgo pkg-config: kube-iptables-agent-c
#include <kube_iptables_agent.h>
#include <stdlib.h>

extern void kubeiptablesEvent(uintptr_t, char*, size_t);
extern void kubeiptablesNotice(uintptr_t, int32_t, char*);

static inline void on_event(void* context, const char* json, size_t length) {
  kubeiptablesEvent((uintptr_t)context, (char*)json, length);
}
static inline void on_notice(void* context, int32_t severity, const char* text) {
  kubeiptablesNotice((uintptr_t)context, severity, (char*)text);
}

// The context is a cgo.Handle, a number: C keeps no pointers to Go's memory.
static inline int create(const struct kube_iptables_agent_options* options, uintptr_t context,
                  struct kube_iptables_agent** agent, struct kube_iptables_agent_error* error) {
  const struct kube_iptables_agent_handlers handlers = {
      .size = sizeof handlers,
      .context = (void*)context,
      .event = on_event,
      .notice = on_notice,
  };
  return kube_iptables_agent_create(options, &handlers, agent, error);
}
*/
import "C"

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/cgo"
	"sync"
	"unsafe"
)

// Agent keeps the rules of one network namespace in place until its context is done. The rules stay.
type Agent struct {
	events  chan Event
	notices func(Notice)
	// Closed when the thread has freed the agent; then failure is final.
	ended   chan struct{}
	failure error
	// Guards what follows.
	mutex   sync.Mutex
	handle  *C.struct_kube_iptables_agent // nil after the end
	work    []func()                      // for the agent's thread
	pending []Event
}

// Event is the end of a round: the fields of the JSON that programs need most, and all of it.
type Event struct {
	Trigger  string          `json:"trigger"`
	Incident json.RawMessage `json:"incident"` // null where nothing was damaged
	Families []struct {
		Family string `json:"family"`
		Phase  string `json:"phase"`
		Reason string `json:"reason"`
	} `json:"changedFamilies"`
	JSON json.RawMessage `json:"-"`
}

// Repaired reports whether the round repaired damage.
func (e Event) Repaired() bool { return len(e.Incident) != 0 && string(e.Incident) != "null" }

// Notice is a sentence for the operator, which no event reports.
type Notice struct {
	Severity int // 0: information, 1: warning, 2: error
	Text     string
}

// How many events wait for a reader that is slow. Repairs never wait for it: the oldest are dropped.
const mostPending = 1024

// Start creates an agent and begins to keep the rules in place. It ends when ctx is done.
//
// Errors are *Error, with the codes of kube_iptables_agent_create.
func Start(ctx context.Context, options Options) (*Agent, error) {
	agent := &Agent{
		events:  make(chan Event),
		notices: options.OnNotice,
		ended:   make(chan struct{}),
	}
	// The namespace that the new thread must have; the caller's may change, and the goroutine move.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	netns, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("kubeiptables: reading the calling thread's namespace: %w", err)
	}
	created := make(chan error)
	go agent.run(ctx, options, netns, created)
	if err := <-created; err != nil {
		return nil, err
	}
	return agent, nil
}

// Events of the agent. Closed after its end. A reader that is slow loses the oldest.
func (a *Agent) Events() <-chan Event { return a.events }

// Wait returns when the agent has ended: nil after its context was done, or why the event loop failed.
func (a *Agent) Wait() error {
	<-a.ended
	return a.failure
}

// SetOptions makes other options count from now on. Options.OnNotice stays the first.
func (a *Agent) SetOptions(ctx context.Context, options Options) error {
	return a.call(ctx, func() error {
		memory := new(memory)
		defer memory.free()
		given := options.inC(memory)
		var failure C.struct_kube_iptables_agent_error
		return result(C.kube_iptables_agent_set_options(a.handle, given, &failure), &failure)
	})
}

// State is what the agent knows, without reading the kernel.
func (a *Agent) State(ctx context.Context) (json.RawMessage, error) {
	return a.report(ctx, func(json **C.char, failure *C.struct_kube_iptables_agent_error) C.int {
		return C.kube_iptables_agent_state_json(a.handle, json, failure)
	})
}

// Report is what the last round found and did.
func (a *Agent) Report(ctx context.Context) (json.RawMessage, error) {
	return a.report(ctx, func(json **C.char, failure *C.struct_kube_iptables_agent_error) C.int {
		return C.kube_iptables_agent_report_json(a.handle, json, failure)
	})
}

// Sync does one round now, whatever is due, and returns what it found and did.
func (a *Agent) Sync(ctx context.Context) (json.RawMessage, error) {
	return a.report(ctx, func(json **C.char, failure *C.struct_kube_iptables_agent_error) C.int {
		return C.kube_iptables_agent_sync_json(a.handle, json, failure)
	})
}

// Plan is what would be done now. Reads the kernel, and changes nothing.
func (a *Agent) Plan(ctx context.Context) (json.RawMessage, error) {
	return a.report(ctx, func(json **C.char, failure *C.struct_kube_iptables_agent_error) C.int {
		return C.kube_iptables_agent_plan_json(a.handle, json, failure)
	})
}

// Audit is who depends on kubelet's chains. Reads all rules, and changes nothing.
func (a *Agent) Audit(ctx context.Context) (json.RawMessage, error) {
	return a.report(ctx, func(json **C.char, failure *C.struct_kube_iptables_agent_error) C.int {
		return C.kube_iptables_agent_audit_json(a.handle, json, failure)
	})
}

// Version is the release of the library that runs.
func Version() string { return C.GoString(C.kube_iptables_agent_version()) }

func (a *Agent) report(ctx context.Context, make func(**C.char, *C.struct_kube_iptables_agent_error) C.int) (json.RawMessage, error) {
	var text json.RawMessage
	err := a.call(ctx, func() error {
		var json *C.char
		var failure C.struct_kube_iptables_agent_error
		if err := result(make(&json, &failure), &failure); err != nil {
			return err
		}
		defer C.kube_iptables_agent_string_free(json)
		text = []byte(C.GoString(json))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return text, nil
}

// call runs work on the agent's thread. Where ctx is done first, work may still run, and its result is
// dropped.
func (a *Agent) call(ctx context.Context, work func() error) error {
	done := make(chan error, 1)
	a.enqueue(func() { done <- work() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-a.ended:
	}
	select {
	case err := <-done:
		return err
	default:
		return &Error{Code: FailedPrecondition, Message: "the agent has ended"}
	}
}

// enqueue has the agent's thread do work, if that is not nil, and then look at its context.
func (a *Agent) enqueue(work func()) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.handle == nil {
		return
	}
	if work != nil {
		a.work = append(a.work, work)
	}
	C.kube_iptables_agent_wake(a.handle, nil)
}

func (a *Agent) takeWork() []func() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	work := a.work
	a.work = nil
	return work
}

// run is the agent's thread. It is never unlocked: Go ends a locked thread with its goroutine, so
// nothing else ever runs on one that has been in another state than Go's.
func (a *Agent) run(ctx context.Context, options Options, netns string, created chan<- error) {
	runtime.LockOSThread()
	self := cgo.NewHandle(a)
	defer self.Delete()
	if err := a.create(options, netns, self); err != nil {
		created <- err
		return
	}
	created <- nil
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Add(2)
	kick := make(chan struct{}, 1)
	go func() { defer sending.Done(); a.send(kick, stop) }()
	go func() {
		defer sending.Done()
		select {
		case <-ctx.Done():
			a.enqueue(nil)
		case <-stop:
		}
	}()
	for ctx.Err() == nil && a.failure == nil {
		a.turn(kick)
	}
	a.mutex.Lock()
	var failure C.struct_kube_iptables_agent_error
	if err := result(C.kube_iptables_agent_free(a.handle, &failure), &failure); a.failure == nil {
		a.failure = err
	}
	a.handle = nil
	a.mutex.Unlock()
	close(stop)
	sending.Wait()
	close(a.events)
	close(a.ended)
}

func (a *Agent) create(options Options, netns string, self cgo.Handle) error {
	if own, err := os.Readlink("/proc/thread-self/ns/net"); options.Netns == "" && (err != nil || own != netns) {
		return &Error{Code: FailedPrecondition, Message: "Start was called in the network namespace " + netns +
			", and its new thread is in " + own + ": name the namespace in Options.Netns"}
	}
	memory := new(memory)
	defer memory.free()
	var failure C.struct_kube_iptables_agent_error
	return result(C.create(options.inC(memory), C.uintptr_t(self), &a.handle, &failure), &failure)
}

// turn waits for something to do, and does it.
func (a *Agent) turn(kick chan<- struct{}) {
	for _, work := range a.takeWork() {
		work()
	}
	var failure C.struct_kube_iptables_agent_error
	a.failure = result(C.kube_iptables_agent_dispatch(a.handle, -1, &failure), &failure)
	select {
	case kick <- struct{}{}:
	default:
	}
}

// send hands events to the reader, so that the agent's thread never waits for it.
func (a *Agent) send(kick <-chan struct{}, stop <-chan struct{}) {
	for {
		event, some := a.oldest()
		if !some {
			select {
			case <-kick:
				continue
			case <-stop:
				return
			}
		}
		select {
		case a.events <- event:
		case <-stop:
			return
		}
	}
}

func (a *Agent) oldest() (Event, bool) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if len(a.pending) == 0 {
		return Event{}, false
	}
	event := a.pending[0]
	a.pending = a.pending[1:]
	return event, true
}

//export kubeiptablesEvent
func kubeiptablesEvent(context C.uintptr_t, text *C.char, length C.size_t) {
	a := cgo.Handle(context).Value().(*Agent)
	event := Event{JSON: C.GoBytes(unsafe.Pointer(text), C.int(length))}
	if err := json.Unmarshal(event.JSON, &event); err != nil {
		event.Trigger = "unreadable: " + err.Error()
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if len(a.pending) == mostPending {
		a.pending = a.pending[1:]
	}
	a.pending = append(a.pending, event)
}

//export kubeiptablesNotice
func kubeiptablesNotice(context C.uintptr_t, severity C.int32_t, text *C.char) {
	a := cgo.Handle(context).Value().(*Agent)
	if a.notices != nil {
		a.notices(Notice{Severity: int(severity), Text: C.GoString(text)})
	}
}
