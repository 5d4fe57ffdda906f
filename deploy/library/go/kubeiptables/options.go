// SPDX-License-Identifier: Apache-2.0

package kubeiptables

/*
#include <kube_iptables_agent.h>
#include <stdlib.h>
*/
import "C"

import (
	"time"
	"unsafe"
)

// Mode is which iptables is managed.
type Mode int

// The modes; ModeAuto is the iptables that the node uses.
const (
	ModeAuto   Mode = C.KUBE_IPTABLES_AGENT_MODE_AUTO
	ModeNft    Mode = C.KUBE_IPTABLES_AGENT_MODE_NFT
	ModeLegacy Mode = C.KUBE_IPTABLES_AGENT_MODE_LEGACY
)

// Families is a set of IP families.
type Families int

// The families; FamiliesAuto is IPv4, and IPv6 where the namespace has it.
const (
	FamiliesAuto Families = C.KUBE_IPTABLES_AGENT_FAMILIES_AUTO
	IPv4         Families = C.KUBE_IPTABLES_AGENT_IPV4
	IPv6         Families = C.KUBE_IPTABLES_AGENT_IPV6
)

// Pair is two bits of the packet mark, or two connection labels.
type Pair struct {
	Masquerade, Drop int32
}

// Options are those of struct kube_iptables_agent_options. The zero value is the default.
type Options struct {
	Netns             string // "/run/netns/NAME"; empty: the calling thread's
	EmulatedVersion   string // "1.27"; empty: the newest with a gate that can be turned off
	FeatureGates      map[string]bool
	Bits              *Pair
	Labels            *Pair
	HostRoot          string
	CNIConfDirs       []string
	SyncPeriod        time.Duration
	LongestRetry      time.Duration
	ProgramDeadline   time.Duration
	NoUtilChains      bool
	Families          Families
	Mode              Mode
	Poll              bool
	Observe           bool
	RetireStaleChains bool
	HintAlways        bool
	// Called on the agent's thread, so it must be quick and must not call the agent. May be nil.
	OnNotice func(Notice)
}

// memory is what C reads during one call: C must not see pointers in Go's memory to Go's memory.
type memory struct {
	blocks []unsafe.Pointer
}

func (m *memory) free() {
	for _, block := range m.blocks {
		C.free(block)
	}
}

func (m *memory) allocate(count int, size uintptr) unsafe.Pointer {
	block := C.calloc(C.size_t(count), C.size_t(size))
	m.blocks = append(m.blocks, block)
	return block
}

// text is NULL where s is empty, which is the default of every text.
func (m *memory) text(s string) *C.char {
	if s == "" {
		return nil
	}
	text := C.CString(s)
	m.blocks = append(m.blocks, unsafe.Pointer(text))
	return text
}

func (m *memory) pair(p *Pair) *C.struct_kube_iptables_agent_pair {
	if p == nil {
		return nil
	}
	pair := (*C.struct_kube_iptables_agent_pair)(m.allocate(1, unsafe.Sizeof(C.struct_kube_iptables_agent_pair{})))
	pair.masquerade, pair.drop = C.int32_t(p.Masquerade), C.int32_t(p.Drop)
	return pair
}

func flag(set bool) C.int32_t {
	if set {
		return 1
	}
	return 0
}

// milliseconds rounds up, so that a short time does not become the default.
func milliseconds(d time.Duration) C.int64_t {
	if d > 0 {
		d += time.Millisecond - 1
	}
	return C.int64_t(d.Milliseconds())
}

// inC is a copy of the options in memory.
func (o Options) inC(m *memory) *C.struct_kube_iptables_agent_options {
	options := (*C.struct_kube_iptables_agent_options)(m.allocate(1, unsafe.Sizeof(C.struct_kube_iptables_agent_options{})))
	*options = C.struct_kube_iptables_agent_options{
		size:                C.sizeof_struct_kube_iptables_agent_options,
		netns:               m.text(o.Netns),
		emulated_version:    m.text(o.EmulatedVersion),
		bits:                m.pair(o.Bits),
		labels:              m.pair(o.Labels),
		host_root:           m.text(o.HostRoot),
		sync_period_ms:      milliseconds(o.SyncPeriod),
		longest_retry_ms:    milliseconds(o.LongestRetry),
		program_deadline_ms: milliseconds(o.ProgramDeadline),
		no_util_chains:      flag(o.NoUtilChains),
		families:            C.int32_t(o.Families),
		iptables_mode:       C.int32_t(o.Mode),
		poll:                flag(o.Poll),
		observe:             flag(o.Observe),
		retire_stale_chains: flag(o.RetireStaleChains),
		hint_always:         flag(o.HintAlways),
	}
	if count := len(o.FeatureGates); count != 0 {
		first := (*C.struct_kube_iptables_agent_gate)(m.allocate(count, unsafe.Sizeof(C.struct_kube_iptables_agent_gate{})))
		gates := unsafe.Slice(first, count)
		for name, enabled := range o.FeatureGates {
			gates[0] = C.struct_kube_iptables_agent_gate{name: m.name(name), enabled: flag(enabled)}
			gates = gates[1:]
		}
		options.feature_gates, options.feature_gate_count = first, C.size_t(count)
	}
	if count := len(o.CNIConfDirs); count != 0 {
		first := (**C.char)(m.allocate(count, unsafe.Sizeof((*C.char)(nil))))
		for i, directory := range o.CNIConfDirs {
			unsafe.Slice(first, count)[i] = m.name(directory)
		}
		options.cni_conf_dirs, options.cni_conf_dir_count = first, C.size_t(count)
	}
	return options
}

// name is a text that may be empty, for an entry of a list.
func (m *memory) name(s string) *C.char {
	text := C.CString(s)
	m.blocks = append(m.blocks, unsafe.Pointer(text))
	return text
}
