// SPDX-License-Identifier: Apache-2.0

package kubeiptables

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// tests/library/go_is_green runs them as root in a network namespace of their own, in which all of the
// process's threads are.

func started(t *testing.T, options Options) (*Agent, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	options.Mode = ModeNft
	agent, err := Start(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	return agent, cancel
}

func TestErrorsUnwrapToTheirCode(t *testing.T) {
	for _, row := range []struct {
		options Options
		code    Code
	}{
		{Options{EmulatedVersion: "one"}, InvalidArgument},
		{Options{FeatureGates: map[string]bool{"NoSuchGate": true}}, InvalidArgument},
		{Options{FeatureGates: map[string]bool{"": true}}, InvalidArgument},
		{Options{Bits: &Pair{40, 41}}, InvalidArgument},
		{Options{SyncPeriod: time.Nanosecond}, InvalidArgument},
		{Options{SyncPeriod: -time.Hour}, InvalidArgument},
		{Options{Mode: 7}, InvalidArgument},
		{Options{Netns: "/no/such/namespace"}, NotFound},
		{Options{Netns: "/dev/null"}, InvalidArgument},
	} {
		agent, err := Start(context.Background(), row.options)
		var failure *Error
		if agent != nil || !errors.Is(err, row.code) || !errors.As(err, &failure) || failure.Message == "" {
			t.Errorf("%+v: %v, not %v", row.options, err, row.code)
		}
	}
	if InvalidArgument.Error() != "INVALID_ARGUMENT" || errors.Is(InvalidArgument, NotFound) {
		t.Error("the codes' names")
	}
}

func TestRulesAreInPlaceAfterTheFirstEventAndReportsHaveTheirFields(t *testing.T) {
	agent, cancel := started(t, Options{FeatureGates: map[string]bool{"IPTablesOwnershipCleanup": false}})
	event := <-agent.Events()
	if event.Trigger != "start" || event.Repaired() || len(event.Families) == 0 {
		t.Errorf("%s", event.JSON)
	}
	for name, row := range map[string]struct {
		report func(context.Context) (json.RawMessage, error)
		field  string
	}{
		"state": {agent.State, "ready"}, "report": {agent.Report, "applied"},
		"plan": {agent.Plan, "changes"}, "audit": {agent.Audit, "findings"},
	} {
		text, err := row.report(context.Background())
		var fields map[string]json.RawMessage
		if err != nil || json.Unmarshal(text, &fields) != nil || fields[row.field] == nil {
			t.Errorf("%s: %v: %s", name, err, text)
		}
		if name == "plan" && string(fields["changes"]) != "[]" {
			t.Errorf("left to do: %s", fields["changes"])
		}
	}
	cancel()
	if err := agent.Wait(); err != nil {
		t.Error(err)
	}
	for range agent.Events() {
	}
	if _, err := agent.State(context.Background()); !errors.Is(err, FailedPrecondition) {
		t.Errorf("after the end: %v", err)
	}
}

func TestOptionsChangeAndWrongOnesLeaveTheOldInForce(t *testing.T) {
	agent, _ := started(t, Options{FeatureGates: map[string]bool{"IPTablesOwnershipCleanup": false}})
	mode := func() string {
		text, err := agent.State(context.Background())
		var state struct{ Mode string }
		if err != nil || json.Unmarshal(text, &state) != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return state.Mode
	}
	<-agent.Events()
	wrong := Options{Mode: ModeNft, FeatureGates: map[string]bool{"NoSuchGate": true}}
	if err := agent.SetOptions(context.Background(), wrong); !errors.Is(err, InvalidArgument) || mode() != "legacy" {
		t.Errorf("%v, %s", err, mode())
	}
	if err := agent.SetOptions(context.Background(), Options{Mode: ModeLegacy}); !errors.Is(err, FailedPrecondition) {
		t.Error(err)
	}
	if err := agent.SetOptions(context.Background(), Options{Mode: ModeNft}); err != nil {
		t.Error(err)
	}
	for i := 0; mode() != "cleanup"; i++ {
		if i == 100 {
			t.Fatal(mode())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestAnyGoroutineMayCallAndADoneContextReturns(t *testing.T) {
	agent, cancel := started(t, Options{})
	var callers sync.WaitGroup
	for i := 0; i < 20; i++ {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for j := 0; j < 5; j++ {
				if _, err := agent.State(context.Background()); err != nil && !errors.Is(err, FailedPrecondition) {
					t.Error(err)
				}
			}
		}()
	}
	done, abandon := context.WithCancel(context.Background())
	abandon()
	if _, err := agent.State(done); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	callers.Wait()
	// Nobody reads the events: that keeps the agent neither from working nor from ending.
	cancel()
	if err := agent.Wait(); err != nil {
		t.Error(err)
	}
}

func TestAnotherNamespaceOfTheCallersThreadIsRefusedOrNamed(t *testing.T) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// Never unlocked, so the thread ends with this goroutine.
		runtime.LockOSThread()
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		if _, err := Start(context.Background(), Options{}); !errors.Is(err, FailedPrecondition) ||
			!strings.Contains(err.Error(), "Options.Netns") {
			t.Errorf("in another namespace: %v", err)
		}
		agent, _ := started(t, Options{Netns: fmt.Sprintf("/proc/self/task/%d/ns/net", syscall.Gettid())})
		<-agent.Events()
		if _, err := agent.Plan(context.Background()); err != nil {
			t.Error(err)
		}
		if report, err := agent.Sync(context.Background()); err != nil || len(report) == 0 {
			t.Error(err)
		}
	}()
	<-ended
}

func TestVersionIsARelease(t *testing.T) {
	if strings.Count(Version(), ".") != 2 {
		t.Error(Version())
	}
}
