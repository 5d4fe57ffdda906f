# SPDX-License-Identifier: Apache-2.0
"""What the steps are made of: the agent, kubelet and kube-proxy in a state, and what is read and judged."""

import json
import pathlib
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request

from node import Failure, run, say, until
from packets import Stream


class Base:
    def __init__(self, node, packets, quiet, iptables):
        self.node, self.packets, self.quiet, self.iptables = node, packets, quiet, iptables
        self.release, self.pod = node.release, None
        chains = rf"KUBE-(?:{self.release['chains']})\b"
        # The chains, what is in them, and the jumps of iptables' own chains to them.
        self.owned_lines = re.compile(rf"(?::|-A ){chains}|-A [A-Z]+ .*-j {chains}")

    # ---- what the steps are made of ----

    def agent(self, **settings):
        """Starts the agent with these settings, or gives them to the running one."""
        settings = {"emulatedVersion": self.release["emulated"], **settings}
        config = {"apiVersion": "kube-iptables-agent/v1alpha1", "kind": "KubeIPTablesAgentConfiguration",
                  "ipFamilies": "ipv4", **settings}
        reads = self.agent_log("Loaded")
        path = self.node.work / "agent.yaml"
        path.with_suffix(".new").write_text(json.dumps(config))
        path.with_suffix(".new").rename(path)
        if not self.node.agent.running():
            self.node.agent.start(self.node.agent_program, "run", "--host-root=/", f"--config={path}")
        until(self.node.agent.tail, lambda: self.in_force(settings))
        if not settings.get("observe"):
            until(lambda: f"{self.ask_agent('/readyz?verbose')}\n{self.node.agent.tail()}",
                  lambda: self.ask_agent("/readyz") == "ok")
        return reads

    def agent_log(self, text):
        path = pathlib.Path(self.node.agent.log)
        return path.read_text(errors="replace").count(text) if path.exists() else 0

    def in_force(self, settings):
        text = self.ask_agent("/configz", 10271)
        gates = settings.get("featureGates", {})
        try:
            shown = json.loads(text)
        except ValueError:
            return False
        flat = json.dumps(shown)
        return all(json.dumps(value) in flat for key, value in settings.items() if key == "emulatedVersion") and \
            all(f'"{gate}": {json.dumps(value)}' in flat for gate, value in gates.items())

    @staticmethod
    def ask_agent(path, port=10270):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.read().decode().strip()
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError as error:
            return str(error)

    def metric(self, name):
        """The sum of all rows of that metric."""
        rows = re.findall(rf"^kube_iptables_agent_{name}(?:{{.*}})? (\S+)$", self.ask_agent("/metrics", 10271),
                          re.MULTILINE)
        if not rows and "_agent_" not in self.ask_agent("/metrics", 10271):
            raise Failure(f"the agent answers no metrics: {self.node.agent.tail()}")
        return sum(map(float, rows))

    def command(self, *arguments, expect=(0,)):
        done = subprocess.run([self.node.agent_program, *arguments, "--host-root=/",
                               f"--config={self.node.work}/agent.yaml"],
                              capture_output=True, text=True, check=False)
        if done.returncode not in expect:
            raise Failure(f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def plain(self):
        """kubelet and kube-proxy as Kubernetes has them, no agent, and all packets right."""
        node = self.node
        if node.agent.running():
            node.agent.end()
        if node.settings or not node.kubelet.running():
            self.kubelet()
        if node.proxy_settings or not node.proxy.running():
            self.proxy()
        self.packets.judge(90)

    def kubelet(self, **settings):
        if self.node.kubelet.running():
            self.node.kubelet.end()
        self.node.settings = settings
        since = time.time()
        self.node.start_kubelet()

        def reported():
            conditions = self.node.api.ask("GET", "/api/v1/nodes/node")["status"]["conditions"]
            ready = next(one for one in conditions if one["type"] == "Ready")
            beat = time.mktime(time.strptime(ready["lastHeartbeatTime"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
            return ready["status"] == "True" and beat >= int(since)
        until(self.node.kubelet.tail, reported, 60)

    def proxy(self, **settings):
        if self.node.proxy.running():
            self.node.proxy.end()
        self.node.proxy_settings = settings
        self.node.start_proxy()

    @staticmethod
    def flush():
        """As a firewall's restart does it: everything of both families."""
        for family in ("iptables", "ip6tables"):
            tables = "".join(f"*{table}\nCOMMIT\n" for table in ("mangle", "filter", "nat"))
            run(f"/usr/sbin/{family}-restore", text=tables)

    def owned(self):
        """All that is kubelet's or the agent's, without counters and in the order of the tables."""
        lines = []
        for table in ("mangle", "nat", "filter"):
            text = re.sub(r" ?\[[0-9:]+\]", "", run("/usr/sbin/iptables-save", "-t", table))
            lines += [f"{table} {line}" for line in text.splitlines() if self.owned_lines.match(line)]
        return lines

    def flush_and_await(self, before):
        """The agent must notice, and put back all that was there."""
        noticed, started = self.metric("drift_detected_total"), time.monotonic()
        self.flush()
        until(lambda: f"missing: {sorted(set(before) - set(self.owned()))}",
              lambda: not set(before) - set(self.owned()), 10)
        took = time.monotonic() - started
        until("the agent's count of damage", lambda: self.metric("drift_detected_total") > noticed, 2)
        say(f"  flush: the lines are back after {took:.2f} s, "
            f"{self.metric('drift_detected_total') - noticed:g} were missing")

    def renew_host_port(self):
        """portmap makes its rules once for each pod: a flush takes them away for good."""
        self.node.api.delete_pod("c")
        self.packets.make_host_port_pod()

    def after_flush(self, **others):
        self.renew_host_port()
        return self.packets.judge(60, **others)

    def no_oscillation(self, seconds):
        # A round of kubelet's and one of kube-proxy's may still be under way.
        time.sleep(3)
        first, end, reads = self.owned(), time.monotonic() + seconds, 0
        names = ("drift_detected_total", "ownership_fights_total", "refills_total", "sync_errors_total")
        figures = {name: self.metric(name) for name in names}
        with Stream(self.packets) as stream:
            while time.monotonic() < end:
                now, reads = self.owned(), reads + 1
                if now != first:
                    raise Failure(f"a line came or went: {sorted(set(now) ^ set(first)) or 'their order'}")
                time.sleep(0.5)
        after = {name: self.metric(name) for name in names}
        if after != figures:
            raise Failure(f"not quiet: {figures}, then {after}\n{self.node.agent.tail()}")
        if stream.wrong:
            raise Failure(f"{len(stream.wrong)} of the stream's connections: {set(stream.wrong)}")
        say(f"  {seconds} s: {reads} reads of the rules are equal, nothing was repaired, "
            f"{stream.right} connections were right")
