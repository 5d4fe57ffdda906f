# SPDX-License-Identifier: Apache-2.0
"""What is done on the node, step by step. tests/node/run starts this in the node's namespaces."""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from node import SAID, Failure, Node, is_ready, run, say, until
from packets import ACCEPTED, ARRIVED, Packets, Stream

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
# What kube-proxy 1.20 cannot have dropped where no program fills KUBE-MARK-DROP (deploy/upgrades.md, "D").
FAILS_OPEN = {"client outside of the source ranges": "node", "policy Local, no local pod": ACCEPTED}
CHAINS = r"KUBE-(?:MARK-MASQ|MARK-DROP|FIREWALL|POSTROUTING|KUBELET-CANARY|IPTABLES-HINT)\b"
# The chains, what is in them, and the jumps of iptables' own chains to them.
OWNED = re.compile(rf"(?::|-A ){CHAINS}|-A [A-Z]+ .*-j {CHAINS}")
IMAGE = "localhost/kube-iptables-agent:0.7.0"


class Steps:
    def __init__(self, node, packets, quiet, iptables):
        self.node, self.packets, self.quiet, self.iptables = node, packets, quiet, iptables
        self.pod = None

    # ---- what the steps are made of ----

    def agent(self, **settings):
        """Starts the agent with these settings, or gives them to the running one."""
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
        if not node.proxy.running():
            node.start_proxy()
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

    @staticmethod
    def flush():
        """As a firewall's restart does it: everything of both families."""
        for family in ("iptables", "ip6tables"):
            tables = "".join(f"*{table}\nCOMMIT\n" for table in ("mangle", "filter", "nat"))
            run(f"/usr/sbin/{family}-restore", text=tables)

    @staticmethod
    def owned():
        """All that is kubelet's or the agent's, without counters and in the order of the tables."""
        lines = []
        for table in ("mangle", "nat", "filter"):
            text = re.sub(r" ?\[[0-9:]+\]", "", run("/usr/sbin/iptables-save", "-t", table))
            lines += [f"{table} {line}" for line in text.splitlines() if OWNED.match(line)]
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

    # ---- the steps ----

    def step_kubelet_alone(self):
        say(f"  {self.packets.judge(60)} kinds of packets are right; {len(self.owned())} lines are kubelet's")
        self.flush()
        self.node.kubelet.end()
        self.node.start_kubelet()
        say(f"  after a flush and a restart of kubelet: {self.after_flush()} are right")

    def step_judges_see(self):
        """Without kubelet's chains and without the agent the same questions have other answers."""
        self.kubelet(makeIPTablesUtilChains=False)
        self.flush()
        self.after_flush(**FAILS_OPEN, **{"martian packet": ARRIVED})
        say("  no program makes the chains: source ranges, policy Local and martian packets fail open")

    def step_observe(self):
        before = self.owned()
        self.agent(observe=True, emulatedVersion="1.24")
        pending = self.metric("pending_changes")
        for line in self.command("plan", expect=(0, 2)).splitlines():
            if line.startswith("  +") or line.startswith("  -"):
                say(f"  would: {line.strip()}")
        say(f"  pending changes: {pending:g}; {self.packets.judge()} kinds of packets are right")
        if self.owned() != before:
            raise Failure("the observing agent, or kubelet next to it, changed rules")

    def step_coexist(self):
        self.agent(emulatedVersion="1.24")
        say(f"  {self.packets.judge()} kinds of packets are right; {len(self.owned())} lines are kubelet's")
        self.no_oscillation(self.quiet)

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

    def step_quiet_judges_see(self):
        """The judges of no_oscillation() each fail when there is something to see."""
        self.agent(emulatedVersion="1.24")
        block = "add table inet kipt; add chain inet kipt in { type filter hook prerouting priority -400; }; " \
                "add rule inet kipt in tcp dport 30080 drop"
        rule = ["KUBE-FIREWALL", "-s", "198.51.100.1/32", "-j", "DROP"]
        # A read may fall into the moment before the repair.
        for texts, damage, repair in (
                (("not quiet", "a line came or went"), ["iptables", "-t", "nat", "-F", "KUBE-MARK-MASQ"], None),
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
        self.agent(emulatedVersion="1.24")
        before = self.owned()
        for _ in range(3):
            self.flush_and_await(before)
        say(f"  {self.after_flush()} kinds of packets are right")

    def step_restart_everybody(self):
        self.agent(emulatedVersion="1.24")
        node = self.node
        # Not node.start_kubelet: a kubelet that is still starting ends where it finds no containerd.
        starts = {"kubelet": self.kubelet, "proxy": node.start_proxy, "containerd": node.start_containerd,
                  "agent": lambda: self.agent(emulatedVersion="1.24")}
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
        self.agent(emulatedVersion="1.24")
        for name in ("kubelet", "proxy", "containerd", "agent"):
            getattr(self.node, name).end(signal.SIGKILL)
        self.flush()
        self.node.start_containerd()
        self.agent(emulatedVersion="1.24")
        self.node.start_proxy()
        self.kubelet()
        say(f"  as after a reboot: {self.after_flush()} kinds of packets are right")

    def step_own_gate_off(self):
        self.agent(emulatedVersion="1.24")
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
        self.agent(emulatedVersion="1.24")
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
        self.after_flush(**FAILS_OPEN)
        say("  gate on, flushed: what deploy/upgrades.md calls D, and martian packets are dropped")
        self.agent(**off)
        say(f"  gate off again: {self.packets.judge(30)} are right; {stream.right} connections were right")

    def step_retire_for_good(self):
        """The agent is to be removed, and so is kube-proxy: what may go, goes; what protects stays."""
        self.kubelet(makeIPTablesUtilChains=False)
        self.agent(emulatedVersion="1.24")
        self.node.agent.end()
        self.command("retire", "--yes", "--make-iptables-util-chains=false", expect=(0, 2))
        left = self.owned()
        say("\n".join(f"  stays: {line}" for line in left))
        say(f"  {self.packets.judge()} kinds of packets are right")

    def step_proxy_cleanup(self):
        for settings in (None, {"emulatedVersion": "1.27"}, {"emulatedVersion": "1.24"}):
            if settings is not None:
                self.agent(**settings)
            self.node.proxy.end()
            done = subprocess.run([str(self.node.programs / "kube-proxy"), "--cleanup",
                                   f"--config={self.node.proxy_config()}"], capture_output=True, text=True,
                                  check=False)
            rest = [line for line in run("/usr/sbin/iptables-save").splitlines()
                    if re.search(r"KUBE-(SVC|SEP|XLB|FW|SERVICES|NODEPORTS|EXTERNAL|FORWARD)", line)]
            if rest or done.returncode != 0:
                raise Failure(f"--cleanup: {done.returncode}, {len(rest)} lines left\n{done.stderr}")
            say(f"  {settings or 'no agent'}: --cleanup ends with {done.returncode} and leaves nothing")
            until(lambda: f"host port: {self.packets.answers()['client to host port']}",
                  lambda: self.packets.answers()["client to host port"].startswith("c "))
            if settings is not None and self.packets.martian() == ARRIVED:
                raise Failure("martian packets arrive after --cleanup")
            self.node.start_proxy()
            say(f"  kube-proxy again: {self.packets.judge(60)} kinds of packets are right")

    # ---- the agent as a pod ----

    def import_agent(self):
        words = dict(re.findall(r"^(ENTRYPOINT|CMD|USER) (.*)$", (TOP / "deploy/container/Dockerfile").read_text(),
                                re.MULTILINE))
        self.node.import_image(IMAGE, self.node.work / "image", {
            "Entrypoint": json.loads(words["ENTRYPOINT"]), "Cmd": json.loads(words["CMD"]), "User": words["USER"]})

    def kustomization(self, overlay):
        """A folder: on iptables-legacy the overlay with the component `legacy`, which kubectl 1.20 cannot name."""
        manifests = TOP / "deploy/kubernetes"
        if self.iptables == "nft":
            return str(manifests / "overlays" / overlay)
        folder = self.node.work / "kustomization"
        folder.mkdir(exist_ok=True)
        shutil.copy(manifests / "components/legacy/daemonset.yaml", folder)
        (folder / "kustomization.yaml").write_text(
            f"bases: [{os.path.relpath(manifests / 'overlays' / overlay, folder)}]\n"
            "patchesStrategicMerge: [daemonset.yaml]\n")
        return str(folder)

    def start_pod(self, overlay, release):
        """What the DaemonSet's controller would make of the manifests."""
        text = run("kubectl", "kustomize", self.kustomization(overlay))
        text = run("kubectl", "annotate", "--local", "--filename", "-", "x=y", "--output", "json", text=text)
        decoder, things, at = json.JSONDecoder(), {}, 0
        while at < len(text.rstrip()):
            thing, at = decoder.raw_decode(text, at)
            things[thing["kind"]] = thing
            at += len(text[at:]) - len(text[at:].lstrip())
        config = things["ConfigMap"]["data"]
        config["config.yaml"] = re.sub('^emulatedVersion: .*$', f'emulatedVersion: "{release}"',
                                       config["config.yaml"], flags=re.MULTILINE)
        self.node.api.create(things["ConfigMap"])
        template = things["DaemonSet"]["spec"]["template"]
        self.pod = f"kube-iptables-agent-{overlay}"
        self.node.api.create({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": self.pod, "namespace": "kube-system", "labels": template["metadata"]["labels"]},
            "spec": {**template["spec"], "nodeName": "node"}})
        until(lambda: json.dumps(self.node.api.pod(self.pod, "kube-system")["status"], indent=1),
              lambda: is_ready(self.node.api.pod(self.pod, "kube-system")), 60)

    def pod_restarts(self):
        return self.node.api.pod(self.pod, "kube-system")["status"]["containerStatuses"][0]["restartCount"]

    def end_pod(self):
        started = time.monotonic()
        self.node.api.delete_pod(self.pod, "kube-system")
        say(f"  deleted: it ended within {time.monotonic() - started:.0f} s")

    def audit_fleet(self):
        """portmap's CNI configuration names KUBE-MARK-MASQ, which a pod's audit finds, too."""
        done = subprocess.run([str(TOP / "deploy/kubernetes/audit-fleet")], capture_output=True, text=True, check=False,
                              env={**os.environ, "KUBECONFIG": self.node.access})
        lines = done.stdout.splitlines()
        if done.returncode != 2 or not any(re.match(r"1 .* CniConfig .*nat/KUBE-MARK-MASQ", line) for line in lines):
            raise Failure(f"audit-fleet ended with {done.returncode}: {done.stdout}{done.stderr}")
        say(f"  audit-fleet: {lines[0]}")

    def step_as_a_pod(self):
        self.import_agent()
        before = self.owned()
        self.start_pod("observe", "1.24")
        if self.owned() != before:
            raise Failure("the observing pod, or kubelet next to it, changed rules")
        say(f"  observe: ready by kubelet's probes; pending changes: {self.metric('pending_changes'):g}")
        self.end_pod()
        self.start_pod("coexist", "1.24")
        say(f"  coexist: ready by kubelet's probes; {self.packets.judge()} kinds of packets are right")
        self.audit_fleet()
        before = self.owned()
        self.flush_and_await(before)
        say(f"  {self.after_flush()} kinds of packets are right")
        ended = run("pidof", "kube-iptables-agent").split()
        run("kill", "-KILL", *ended)
        until("its container was not started again", lambda: self.pod_restarts() == 1, 60)
        until("it is not ready again", lambda: is_ready(self.node.api.pod(self.pod, "kube-system")), 60)
        self.no_oscillation(min(self.quiet, 60))
        if self.pod_restarts() != 1:
            raise Failure("kubelet started its container once more")
        self.end_pod()
        if set(self.owned()) != set(before):
            raise Failure(f"other lines: {sorted(set(self.owned()) ^ set(before))}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quiet", type=int, default=600)
    parser.add_argument("--only", default="")
    for name in ("--work", "--programs", "--agent", "--iptables", "--rows"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    steps = [name for name in vars(Steps) if name.startswith("step_") and
             re.search(given.only, name[5:].replace("_", "-"))]
    if not steps:
        raise Failure(f"no step matches {given.only}")
    node = Node(given.work, given.programs, given.agent)
    started = time.monotonic()
    say(f"== The node, with iptables-{given.iptables}")
    node.start()
    packets = Packets(node)
    packets.make()
    packets.judge(60)
    say(f"  ready, and its packets are right, after {time.monotonic() - started:.0f} s")
    run_of = Steps(node, packets, given.quiet, given.iptables)
    for name in steps:
        begun = time.monotonic()
        say(f"== {name[5:].replace('_', ' ').capitalize()}")
        run_of.plain()
        getattr(run_of, name)()
        with open(given.rows, "a", encoding="utf-8") as rows:
            rows.write(f"| `{name[5:].replace('_', '-')}` | {given.iptables} | {time.monotonic() - begun:.0f} | "
                       f"{SAID[-1].strip()} |\n")
        say(f"  {time.monotonic() - begun:.0f} s")
    say(f"== {len(steps)} steps in {time.monotonic() - started:.0f} s: all as expected")


try:
    main()
except Failure as failure:
    say(f"FAILED: {failure}")
    sys.exit(1)
