# SPDX-License-Identifier: Apache-2.0
"""kube-proxy's other modes, and its --cleanup: after its end, and next to a kube-proxy that runs."""

import contextlib
import json
import pathlib
import re
import subprocess
import time

from base import Base
from node import ADDRESS, CannotRun, Failure, run, say, until
from packets import ARRIVED, BALANCER, ask

OF_PROXY = re.compile(r"KUBE-(SVC|SEP|XLB|FW|SERVICES|NODEPORTS|EXTERNAL|FORWARD)")
# What audit may predict, and the question that shows it: an answer before the change, and none after it.
SHOWN_BY = {
    "LocalhostNodePorts": (None, "127.0.0.1:30080"),
    "NodePortAddresses": ("client", f"{BALANCER}:30080"),
    "FirewallBypassed": ("client", f"{ADDRESS}:30080"),
}
# Judged in other ways, or what audit reports of the node as it is.
SHOWN_OTHERWISE = {"ChainUser", "CniConfig", "CleanupBlocked"}
NO_PREDICTION = {"KubeProxy"}


class ModeSteps(Base):
    # ---- what these steps are made of ----

    @contextlib.contextmanager
    def host_port(self, mark_chain):
        """Portmap's rules with that chain to mark, and afterwards with kubelet's again."""
        self.node.write_cni(mark_chain)
        self.renew_host_port()
        yield
        self.node.write_cni()
        self.renew_host_port()

    def cleanable(self):
        """The host port is one that --cleanup of this release gets along with."""
        if self.release["cleanup despite foreign jumps"]:
            return contextlib.nullcontext()
        return self.host_port(None)

    def cleanup(self):
        """Runs kube-proxy --cleanup, which must succeed and leave nothing of kube-proxy's."""
        done = subprocess.run([str(self.node.programs / "kube-proxy"), "--cleanup",
                               f"--config={self.node.proxy_config('cleanup.yaml')}"], capture_output=True, text=True,
                              check=False)
        rest = self.lines_of_proxy() + self.tables_of_proxy()
        if rest or done.returncode != 0:
            raise Failure(f"--cleanup: {done.returncode}, {len(rest)} lines left\n{done.stderr}")

    @staticmethod
    def lines_of_proxy():
        return [line for line in run("/usr/sbin/iptables-save").splitlines() if OF_PROXY.search(line)]

    @staticmethod
    def tables_of_proxy():
        return [line for line in run("nft", "list", "tables").splitlines() if line.endswith(" kube-proxy")]

    def nftables(self):
        self.proxy(**self.release["nftables"])
        until(self.node.proxy.tail, self.tables_of_proxy)

    # ---- the steps ----

    def step_proxy_cleanup(self):
        with self.cleanable():
            for settings in (None, {"emulatedVersion": "1.27"}, {}):
                if settings is not None:
                    self.agent(**settings)
                self.node.proxy.end()
                self.cleanup()
                say(f"  {'no agent' if settings is None else settings or 'its own release'}: --cleanup leaves nothing")
                until(lambda: f"host port: {self.packets.answers()['client to host port']}",
                      lambda: self.packets.answers()["client to host port"].startswith("c "))
                if settings is not None and self.packets.martian() == ARRIVED:
                    raise Failure("martian packets arrive after --cleanup")
                self.node.start_proxy()
                say(f"  kube-proxy again: {self.packets.judge(60)} kinds of packets are right")

    def step_cleanup_next_to_proxy(self):
        """Which kube-proxy makes its rules again without a restart; the agent's stay, or are back."""
        self.agent()
        before = self.owned()
        with self.cleanable():
            self.cleanup_of_running("iptables", self.release["notices cleanup"], self.proxy)
            if set(before) - set(self.owned()):
                raise Failure(f"missing: {sorted(set(before) - set(self.owned()))}")
            if self.release["nftables"] is None:
                return
            self.nftables()
            self.packets.judge(60)
            self.cleanup_of_running("nftables", False, self.nftables)
            self.proxy()
            self.packets.judge(60)

    def cleanup_of_running(self, mode, notices, restart):
        started = time.monotonic()
        self.cleanup()
        if notices:
            count = self.packets.judge(60)
            took = time.monotonic() - started
            say(f"  {mode} mode: {count} kinds of packets are right {took:.0f} s after --cleanup")
            return
        # Three of its periods.
        time.sleep(30)
        if (heard := self.packets.answers()["node to service"]).startswith("a "):
            raise Failure(f"kube-proxy serves again in {mode} mode, without a restart: {heard}")
        restart()
        say(f"  {mode} mode: no service 30 s after --cleanup; kube-proxy restarted: {self.packets.judge(60)} kinds of "
            "packets are right")

    def step_to_nftables_and_back(self):
        """What `audit --before=kube-proxy-nftables` predicts happens, and nothing else."""
        if self.release["nftables"] is None:
            raise CannotRun(f"kube-proxy {self.release['version']} has no nftables mode")
        self.agent()
        firewall = ["FORWARD", "-j", "DROP"]
        if "FirewallBypassed" in self.predicted():
            raise Failure("FirewallBypassed is predicted without a firewall")
        run("iptables", "-A", *firewall)
        before = self.heard()
        predicted = self.predicted()
        say(f"  predicted: {', '.join(sorted(predicted))}")
        self.nftables()
        until(lambda: self.packets.answers()["node to service"],
              lambda: self.packets.answers()["node to service"] in self.packets.expected()["node to service"])
        self.compare(predicted, before)
        run("iptables", "-D", *firewall)
        say(f"  without that firewall: {self.packets.judge(30)} kinds of packets are right in nftables mode")
        if (said := self.ask_agent("/readyz")) != "ok":
            raise Failure(f"the agent is not ready in nftables mode: {said}")
        self.after_a_flush(predicted)
        self.proxy()
        self.packets.judge(60)
        until(lambda: f"left over: {self.tables_of_proxy()}", lambda: not self.tables_of_proxy())
        self.renew_host_port()
        say(f"  {len(predicted)} predictions came true; back in iptables mode: {self.packets.judge(60)} kinds of "
            "packets are right")

    def predicted(self):
        text = self.command("audit", "--before=kube-proxy-nftables", "--output=json", expect=(2,))
        kinds = {one["id"] for one in json.loads(text)["findings"]} - NO_PREDICTION
        if self.release["cleanup despite foreign jumps"]:
            # The audit does not know kube-proxy's release, and says that it is about later ones.
            kinds.discard("CleanupBlocked")
        if unknown := kinds - SHOWN_OTHERWISE - set(SHOWN_BY):
            raise Failure(f"predicted, and not judged by this step: {sorted(unknown)}")
        return kinds

    @staticmethod
    def heard():
        return {kind: ask(space, f"http://{url}/cgi-bin/who") for kind, (space, url) in SHOWN_BY.items()}

    def compare(self, predicted, before):
        after = self.heard()
        happened = {kind for kind in SHOWN_BY if before[kind].startswith("a ") and not after[kind].startswith("a ")}
        if self.lines_of_proxy():
            happened.add("CleanupBlocked")
        say(f"  happened: {', '.join(sorted(happened))}")
        judged = predicted & {"CleanupBlocked", *SHOWN_BY}
        if happened != judged:
            raise Failure(f"predicted {sorted(judged)}, happened {sorted(happened)}: {before}, {after}")

    def after_a_flush(self, predicted):
        """As after a reboot: no program makes KUBE-MARK-MASQ, and portmap of that configuration fails."""
        before = self.owned()
        self.flush_and_await(before)
        self.node.api.delete_pod("c")
        self.packets.make_pod("c", ports=[{"containerPort": 8080, "hostPort": 8088}])
        until("portmap does not fail for KUBE-MARK-MASQ", lambda: any(
            "KUBE-MARK-MASQ" in one.get("message", "") and one["involvedObject"]["name"] == "c"
            for one in self.node.api.ask("GET", "/api/v1/namespaces/default/events")["items"]))
        if not {"ChainUser", "CniConfig"} <= predicted:
            raise Failure("portmap fails, which was not predicted")
        with self.host_port(None):
            say(f"  flushed: portmap fails with KUBE-MARK-MASQ; without it {self.packets.judge(60)} kinds are right")
            self.proxy()
            self.packets.judge(60)

    def step_ipvs(self):
        # Not loaded for this: modules are the whole machine's.
        if not pathlib.Path("/proc/net/ip_vs").exists():
            raise CannotRun("this kernel has no ip_vs")
        self.agent()
        before = self.owned()
        self.proxy(mode="ipvs")
        say(f"  IPVS mode: {self.packets.judge(60)} kinds of packets are right")
        self.node.proxy.end()
        with self.cleanable():
            self.cleanup()
        self.proxy()
        if set(before) - set(self.owned()):
            raise Failure(f"missing: {sorted(set(before) - set(self.owned()))}")
        say(f"  back in iptables mode: {self.packets.judge(60)} kinds of packets are right")
