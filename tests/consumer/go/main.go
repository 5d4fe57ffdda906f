// SPDX-License-Identifier: Apache-2.0

// node-agent SETTINGS PORT: a node agent in Go that keeps kubelet's iptables chains in place in its
// network namespace. SETTINGS is a file with one gate a line ("IPTablesOwnershipCleanup=false"), which
// SIGHUP reads again. PORT serves /metrics on 127.0.0.1. SIGTERM ends it and leaves the rules.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"kube-iptables-agent.example/kubeiptables"
)

func optionsFrom(path string) (kubeiptables.Options, error) {
	options := kubeiptables.Options{
		Mode:         kubeiptables.ModeNft,
		FeatureGates: map[string]bool{},
		OnNotice:     func(notice kubeiptables.Notice) { fmt.Println("notice:", notice.Text) },
	}
	file, err := os.Open(path)
	if err != nil {
		return options, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		if options.FeatureGates[name], err = strconv.ParseBool(value); err != nil {
			return options, fmt.Errorf("%s: %w", path, err)
		}
	}
	return options, lines.Err()
}

func serveMetrics(agent *kubeiptables.Agent, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	http.HandleFunc("/metrics", func(answer http.ResponseWriter, request *http.Request) {
		var state struct {
			Ready         bool
			Checks        uint64
			IncidentCount uint64
		}
		text, err := agent.State(request.Context())
		if err == nil {
			err = json.Unmarshal(text, &state)
		}
		if err != nil {
			http.Error(answer, err.Error(), http.StatusServiceUnavailable)
			return
		}
		ready := map[bool]int{true: 1}[state.Ready]
		fmt.Fprintf(answer, "node_agent_ready %d\nnode_agent_checks_total %d\nnode_agent_incidents_total %d\n",
			ready, state.Checks, state.IncidentCount)
	})
	go http.Serve(listener, nil)
	return nil
}

func report(event kubeiptables.Event) {
	for _, family := range event.Families {
		fmt.Println(family.Family, family.Phase, family.Reason)
	}
	if event.Repaired() {
		var incident struct {
			Text               string
			RepairMicroseconds int64
		}
		if json.Unmarshal(event.Incident, &incident) == nil {
			fmt.Printf("repaired in %d us: %s\n", incident.RepairMicroseconds, incident.Text)
		}
	}
}

func run(settings, port string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	options, err := optionsFrom(settings)
	if err != nil {
		return err
	}
	agent, err := kubeiptables.Start(ctx, options)
	if errors.Is(err, kubeiptables.PermissionDenied) {
		return fmt.Errorf("run this as root: %w", err)
	} else if err != nil {
		return err
	}
	if err := serveMetrics(agent, "127.0.0.1:"+port); err != nil {
		fmt.Println("metrics:", err) // no condition for repairing
	}
	for {
		select {
		case event, more := <-agent.Events():
			if !more {
				return agent.Wait()
			}
			report(event)
		case <-hangups:
			if options, err = optionsFrom(settings); err == nil {
				err = agent.SetOptions(ctx, options)
			}
			if err != nil {
				fmt.Println("settings:", err)
				continue
			}
			fmt.Println("settings: read again")
		}
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: node-agent SETTINGS PORT")
		os.Exit(64)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "node-agent:", err)
		os.Exit(1)
	}
	fmt.Println("stopped")
}
