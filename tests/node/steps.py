# SPDX-License-Identifier: Apache-2.0
"""What is done on the node, step by step. tests/node/run starts this in the node's namespaces."""

import argparse
import pathlib
import re
import signal
import sys
import threading
import time

from base import Base
from mode_steps import ModeSteps
from node import SAID, CannotRun, Failure, Node, run, say, until
from packets import ARRIVED, Packets, Stream
from pod_steps import PodSteps
from versions import release


class Steps(Base):
    def step_kubelet_alone(self):
        say(f"  {self.packets.judge(60)} kinds of packets are right; {len(self.owned())} lines are kubelet's")
        self.flush()
        self.node.kubelet.end()
        self.node.start_kubelet()
        say(f"  after a flush and a restart of kubelet: {self.after_flush()} are right")

    def step_judges_see(self):
        """Without kubelet's chains and without the agent the same questions have other answers."""
        wrong = {**self.release["fails open"], "martian packet": ARRIVED}
        self.kubelet(makeIPTablesUtilChains=False)
        self.proxy(**self.release["martians pass"])
        pathlib.Path("/proc/sys/net/ipv4/conf/all/route_localnet").write_text("1")
        self.flush()
        self.after_flush(**wrong)
        say(f"  no program makes the chains; what fails open: {', '.join(wrong)}")

    def step_observe(self):
        before = self.owned()
        self.agent(observe=True)
        pending = self.metric("pending_changes")
        for line in self.command("plan", expect=(0, 2)).splitlines():
            if line.startswith("  +") or line.startswith("  -"):
                say(f"  would: {line.strip()}")
        say(f"  pending changes: {pending:g}; {self.packets.judge()} kinds of packets are right")
        if self.owned() != before:
            raise Failure("the observing agent, or kubelet next to it, changed rules")

    def step_coexist(self):
        self.agent()
        say(f"  {self.packets.judge()} kinds of packets are right; {len(self.owned())} lines are kubelet's")
        self.no_oscillation(self.quiet)

    def step_quiet_judges_see(self):
        """The judges of no_oscillation() each fail when there is something to see."""
        self.agent()
        block = "add table inet kipt; add chain inet kipt in { type filter hook prerouting priority -400; }; " \
                "add rule inet kipt in tcp dport 30080 drop"
        rule = ["KUBE-FIREWALL", "-s", "198.51.100.1/32", "-j", "DROP"]
        # A read may fall into the moment before the repair.
        for texts, damage, repair in (
                (("not quiet", "a line came or went"), self.release["damage"], None),
                (("a line came or went",), ["iptables", "-A", *rule], ["iptables", "-D", *rule]),
                (("of the stream's connections",), ["nft", block], ["nft", "delete table inet kipt"])):
            threading.Timer(5, run, damage).start()
            try:
                self.no_oscillation(10)
            except Failure as failure:
                if not any(text in str(failure) for text in texts):
                    raise
                say(f"  {' '.join(damage)}: {str(failure).splitlines()[0]}")
            else:
                raise Failure(f"not noticed: {' '.join(damage)}")
            if repair:
                run(*repair)
        say(f"  {self.packets.judge(30)} kinds of packets are right again")

    def step_flush_in_coexist(self):
        self.agent()
        before = self.owned()
        for _ in range(3):
            self.flush_and_await(before)
        say(f"  {self.after_flush()} kinds of packets are right")

    def step_restart_everybody(self):
        self.agent()
        node = self.node
        # Not node.start_kubelet: a kubelet that is still starting ends where it finds no containerd.
        starts = {"kubelet": self.kubelet, "proxy": node.start_proxy, "containerd": node.start_containerd,
                  "agent": self.agent}
        before = self.owned()
        with Stream(self.packets) as stream:
            for number in (signal.SIGTERM, signal.SIGKILL):
                for name, start in starts.items():
                    getattr(node, name).end(number)
                    start()
            until("the node is not ready", node.node_is_ready, 60)
            time.sleep(5)
        if stream.wrong:
            raise Failure(f"{len(stream.wrong)} of {stream.right}: {set(stream.wrong)}")
        if set(self.owned()) != set(before):
            raise Failure(f"other lines: {sorted(set(self.owned()) ^ set(before))}")
        say(f"  each ended and killed once: no line changed, {stream.right} connections were right, "
            f"{self.packets.judge()} kinds of packets are right")

    def step_all_killed_and_flushed(self):
        self.agent()
        for name in ("kubelet", "proxy", "containerd", "agent"):
            getattr(self.node, name).end(signal.SIGKILL)
        self.flush()
        self.node.start_containerd()
        self.agent()
        self.node.start_proxy()
        self.kubelet()
        say(f"  as after a reboot: {self.after_flush()} kinds of packets are right")

    def step_own_gate_off(self):
        self.agent()
        before = self.owned()
        with Stream(self.packets) as stream:
            self.kubelet(makeIPTablesUtilChains=False)
        if stream.wrong or self.owned() != before:
            raise Failure(f"the hand-over: {stream.wrong}, {sorted(set(self.owned()) ^ set(before))}")
        say(f"  the hand-over: {stream.right} connections were right, no line changed")
        self.flush_and_await(before)
        say(f"  {self.after_flush()} kinds of packets are right")
        self.node.agent.end(signal.SIGKILL)
        say(f"  killed: {self.packets.judge()} kinds of packets are right without it")
        self.agent()
        self.kubelet()
        say(f"  back to kubelet: {self.packets.judge()} kinds of packets are right")

    def step_gate_forth_and_back(self):
        off, on = ({"emulatedVersion": "1.27", "featureGates": {"IPTablesOwnershipCleanup": one}}
                   for one in (False, True))
        self.kubelet(makeIPTablesUtilChains=False)
        with Stream(self.packets) as stream:
            self.agent(**off)
            say(f"  gate off: {self.packets.judge()} kinds of packets are right")
            self.agent(**on)
            say(f"  gate on, nothing retired: {self.packets.judge()} are right")
            listed = self.command("retire", expect=(0, 2))
            say("\n".join(f"  retire: {line.strip()}" for line in listed.splitlines() if "KUBE-" in line))
            self.command("retire", "--yes", expect=(0, 2))
            say(f"  gate on, retired: {self.packets.judge()} are right, for kube-proxy's claims hold")
        if stream.wrong:
            raise Failure(f"{len(stream.wrong)} of {stream.right}: {set(stream.wrong)}")
        self.flush()
        self.after_flush(**self.release["fails open"])
        fails = ", ".join(self.release["fails open"]) or "nothing"
        say(f"  gate on, flushed; what fails open (deploy/upgrades.md, D): {fails}; martian packets are dropped")
        self.agent(**off)
        say(f"  gate off again: {self.packets.judge(30)} are right; {stream.right} connections were right")

    def step_retire_for_good(self):
        """The agent is to be removed, and so is kube-proxy: what may be removed is; what protects stays."""
        self.kubelet(makeIPTablesUtilChains=False)
        self.agent()
        self.node.agent.end()
        self.command("retire", "--yes", "--make-iptables-util-chains=false", expect=(0, 2))
        left = self.owned()
        say("\n".join(f"  stays: {line}" for line in left))
        say(f"  {self.packets.judge()} kinds of packets are right")


class All(Steps, ModeSteps, PodSteps):
    """Every step; each is done from the same state."""

    def names(self, only):
        steps = [name[5:].replace("_", "-") for kind in (Steps, ModeSteps, PodSteps) for name in vars(kind)
                 if name.startswith("step_")]
        return [name for name in steps if re.search(only, name)]

    def do(self, name):
        """True if it ran and all was as expected."""
        say(f"== {name.replace('-', ' ').capitalize()}")
        self.plain()
        try:
            getattr(self, f"step_{name.replace('-', '_')}")()
        except CannotRun as reason:
            say(f"  cannot run here: {reason}")
            return False
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quiet", type=int, default=600)
    parser.add_argument("--only", default="")
    for name in ("--work", "--programs", "--kubernetes", "--agent", "--iptables", "--rows"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    node = Node(given.work, given.programs, given.agent, release(given.kubernetes))
    packets = Packets(node)
    steps = All(node, packets, given.quiet, given.iptables)
    names, ran, started = steps.names(given.only), 0, time.monotonic()
    if not names:
        raise Failure(f"no step matches {given.only}")
    say(f"== The node, Kubernetes {given.kubernetes} with iptables-{given.iptables}")
    node.start()
    packets.make()
    packets.judge(60)
    say(f"  ready, and its packets are right, after {time.monotonic() - started:.0f} s")
    for name in names:
        begun = time.monotonic()
        ran += steps.do(name)
        with open(given.rows, "a", encoding="utf-8") as rows:
            rows.write(f"| `{name}` | {given.kubernetes} | {given.iptables} | {time.monotonic() - begun:.0f} | "
                       f"{SAID[-1].strip()} |\n")
        say(f"  {time.monotonic() - begun:.0f} s")
    left = f"; {len(names) - ran} cannot run here" if ran < len(names) else ""
    say(f"== {ran} steps in {time.monotonic() - started:.0f} s: all as expected{left}")


try:
    main()
except Failure as failure:
    say(f"FAILED: {failure}")
    sys.exit(1)
