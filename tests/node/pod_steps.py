# SPDX-License-Identifier: Apache-2.0
"""The agent as a pod of the manifests in deploy/kubernetes."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import time

from base import Base
from node import Failure, is_ready, run, say, until

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
IMAGE = "localhost/kube-iptables-agent:0.8.0"


class PodSteps(Base):
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

    def start_pod(self, overlay):
        """What the DaemonSet's controller would make of the manifests."""
        text = run("kubectl", "kustomize", self.kustomization(overlay))
        text = run("kubectl", "annotate", "--local", "--filename", "-", "x=y", "--output", "json", text=text)
        decoder, things, at = json.JSONDecoder(), {}, 0
        while at < len(text.rstrip()):
            thing, at = decoder.raw_decode(text, at)
            things[thing["kind"]] = thing
            at += len(text[at:]) - len(text[at:].lstrip())
        config = things["ConfigMap"]["data"]
        config["config.yaml"] = re.sub('^emulatedVersion: .*$', f'emulatedVersion: "{self.release["emulated"]}"',
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
        self.start_pod("observe")
        if self.owned() != before:
            raise Failure("the observing pod, or kubelet next to it, changed rules")
        say(f"  observe: ready by kubelet's probes; pending changes: {self.metric('pending_changes'):g}")
        self.end_pod()
        self.start_pod("coexist")
        say(f"  coexist: ready by kubelet's probes; {self.packets.judge()} kinds of packets are right")
        self.audit_fleet()
        before = self.owned()
        self.flush_and_await(before)
        say(f"  {self.after_flush()} kinds of packets are right")
        ended = run("pidof", "kube-iptables-agent").split()
        run("kill", "-KILL", *ended)
        until("its container was not started again", lambda: self.pod_restarts() == 1, 60)
        until("it is not ready again", lambda: is_ready(self.node.api.pod(self.pod, "kube-system")), 60)
        if "damage by" not in (shown := self.ask_agent("/statusz", 10271)):
            raise Failure(f"the incident before its restart is forgotten: {shown}")
        self.no_oscillation(min(self.quiet, 60))
        if self.pod_restarts() != 1:
            raise Failure("kubelet started its container once more")
        self.end_pod()
        if set(self.owned()) != set(before):
            raise Failure(f"other lines: {sorted(set(self.owned()) ^ set(before))}")
