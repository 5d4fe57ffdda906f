# SPDX-License-Identifier: Apache-2.0
"""The node: its programs, its API and its network, in the namespaces that tests/node/run made."""

import base64
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import tarfile
import time
import urllib.error
import urllib.request

NAME = "node"
ADDRESS = "192.0.2.10"
CLIENT = "192.0.2.20"
BANNED = "192.0.2.66"
GATEWAY = "10.244.0.1"
BUSYBOX = "localhost/busybox:1"


class Failure(Exception):
    """A step found something else than what it expected."""


class CannotRun(Exception):
    """This machine, or this release, does not have what the step is about."""


SAID = []


def say(text):
    print(text, flush=True)
    SAID.append(text)


def run(*command, check=True, text=None, timeout=60):
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout, check=False)
    if check and done.returncode != 0:
        raise Failure(f"{' '.join(command)}: {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def until(what, condition, seconds=30):
    """Waits for condition() to be true and returns it; what says what is missing otherwise."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.1)
    return found


class Program:
    """A program of the node, that can be ended, killed and started again."""

    def __init__(self, name, log):
        self.name, self.log, self.process = name, log, None

    def start(self, *command):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            start_new_session=True)

    def running(self):
        return self.process is not None and self.process.poll() is None

    def end(self, number=signal.SIGTERM):
        if not self.running():
            raise Failure(f"{self.name} has ended: {self.tail()}")
        self.process.send_signal(number)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failure(f"{self.name} does not end by signal {number}: {self.tail()}") from None

    def text(self):
        return pathlib.Path(self.log).read_text(errors="replace")

    def tail(self):
        return "\n".join(self.text().splitlines()[-12:])


class Api:
    """The API server, asked as its administrator."""

    def __init__(self, token):
        self.token = token
        self.context = ssl.create_default_context()
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE

    def ask(self, method, path, body=None):
        request = urllib.request.Request(f"https://127.0.0.1:6443{path}", method=method,
                                         data=None if body is None else json.dumps(body).encode())
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=10) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise Failure(f"{method} {path}: {error.code}: {error.read().decode()}") from None
        return json.loads(text) if text[:1] == b"{" else text.decode()

    def is_up(self):
        try:
            return self.ask("GET", "/readyz") == "ok"
        except (Failure, OSError):
            return False

    def create(self, thing):
        group = "/api/v1" if thing["apiVersion"] == "v1" else f"/apis/{thing['apiVersion']}"
        plural = thing["kind"].lower() + "s"
        space = thing["metadata"].get("namespace", "default")
        return self.ask("POST", f"{group}/namespaces/{space}/{plural}", thing)

    def pod(self, name, space="default"):
        try:
            return self.ask("GET", f"/api/v1/namespaces/{space}/pods/{name}")
        except Failure:
            return None

    def delete_pod(self, name, space="default"):
        self.ask("DELETE", f"/api/v1/namespaces/{space}/pods/{name}")
        until(f"pod {name} is still there", lambda: self.pod(name, space) is None, 180)


def is_ready(pod):
    conditions = (pod or {}).get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


class Node:
    """All programs of the node. `settings` are kubelet's and `proxy_settings` kube-proxy's, for the next start."""

    def __init__(self, work, programs, agent, release):
        self.work, self.programs, self.agent_program = pathlib.Path(work), pathlib.Path(programs), agent
        self.release = release
        self.token = base64.b32encode(os.urandom(15)).decode()
        self.api = Api(self.token)
        for name in ("etcd", "kube-apiserver", "containerd", "kubelet", "kube-proxy", "agent"):
            setattr(self, name.split("-")[-1], Program(name, str(self.work / f"{name}.log")))
        self.settings, self.proxy_settings = {}, {}

    # ---- network ----

    def make_network(self):
        run("ip", "link", "set", "lo", "up")
        run("ip", "netns", "add", "client")
        run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", "client")
        run("ip", "address", "add", f"{ADDRESS}/24", "dev", "eth0")
        run("ip", "link", "set", "eth0", "up")
        run("ip", "route", "add", "default", "via", CLIENT)
        for one in (["link", "set", "lo", "up"], ["address", "add", f"{CLIENT}/24", "dev", "eth0"],
                    ["address", "add", f"{BANNED}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
                    ["route", "add", "default", "via", ADDRESS]):
            run("ip", "-netns", "client", *one)
        # Bridged packets pass iptables: each namespace's own.
        for name in ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables"):
            pathlib.Path("/proc/sys/net", name).write_text("1")

    # ---- images ----

    def import_image(self, name, root, config):
        """Makes an image of the folder `root`, in the form of `docker save`, and gives it to containerd."""
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as archive:
            archive.add(root, arcname=".")
        digest = hashlib.sha256(layer.getvalue()).hexdigest()
        described = json.dumps({"architecture": "amd64", "os": "linux", "config": config,
                                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}).encode()
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        path = self.work / "image.tar"
        with tarfile.open(path, mode="w") as archive:
            for file, data in (("config.json", described), ("layer.tar", layer.getvalue()),
                               ("manifest.json", json.dumps(manifest).encode())):
                entry = tarfile.TarInfo(file)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        local = ["--local"] if self.containerd_major() >= 2 else []
        run("ctr", "--namespace", "k8s.io", "images", "import", *local, "--snapshotter", "native", str(path))
        path.unlink()

    def import_busybox(self):
        """A web server that answers with the pod's name and the address that it was asked from."""
        root = self.work / "busybox"
        (root / "bin").mkdir(parents=True)
        (root / "www/cgi-bin").mkdir(parents=True)
        shutil.copy("/bin/busybox", root / "bin/busybox")
        (root / "bin/sh").symlink_to("busybox")
        who = root / "www/cgi-bin/who"
        who.write_text("#!/bin/sh\necho\necho $HOSTNAME $REMOTE_ADDR\n")
        who.chmod(0o755)
        for folder in ("proc", "sys", "dev", "etc", "tmp", "run"):
            (root / folder).mkdir()
        self.import_image(BUSYBOX, root, {"Cmd": ["/bin/busybox", "sleep", "2147483647"]})
        shutil.rmtree(root)

    # ---- programs ----

    def write(self, name, text):
        path = self.work / name
        path.write_text(text)
        return str(path)

    def start_api(self):
        run("openssl", "genrsa", "-out", str(self.work / "accounts.key"), "2048")
        tokens = self.write("tokens.csv", f'{self.token},admin,1,"system:masters"\n')
        access = {"apiVersion": "v1", "kind": "Config", "current-context": "c",
                  "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443",
                                                         "insecure-skip-tls-verify": True}}],
                  "users": [{"name": "u", "user": {"token": self.token}}],
                  "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}
        self.access = self.write("kubeconfig", json.dumps(access))
        self.etcd.start("/usr/bin/etcd", "--data-dir=/run/etcd", "--log-level=warn")
        self.apiserver.start(
            str(self.programs / "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
            f"--cert-dir={self.work}/certificates", f"--token-auth-file={tokens}",
            f"--advertise-address={ADDRESS}", "--service-cluster-ip-range=10.96.0.0/16",
            # For kubectl exec: no server resolves the node's name.
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://node", f"--service-account-key-file={self.work}/accounts.key",
            f"--service-account-signing-key-file={self.work}/accounts.key", "--allow-privileged=true",
            "--authorization-mode=AlwaysAllow",
            # Both wait for kube-controller-manager, which this node does not have.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")

    @staticmethod
    def containerd_major():
        return int(re.search(r" v?(\d+)\.", run("containerd", "--version"))[1])

    def start_containerd(self):
        if self.containerd_major() < self.release["containerd"]:
            raise Failure(f"kubelet {self.release['version']} needs containerd {self.release['containerd']} or later")
        config = self.write("containerd.toml", f"""
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{BUSYBOX}"
# A container's may be below this machine's only with CAP_SYS_RESOURCE.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/cni/net.d"
""")
        self.containerd.start("containerd", "--config", config)
        until(self.containerd.tail, lambda: subprocess.run(
            ["ctr", "--namespace", "k8s.io", "containers", "list"], capture_output=True,
            check=False).returncode == 0)

    def write_cni(self, mark_chain="KUBE-MARK-MASQ"):
        folder = pathlib.Path("/etc/cni/net.d")
        folder.mkdir(parents=True, exist_ok=True)
        ranges = [[{"subnet": "10.244.0.0/24"}]]
        (folder / "10-pods.conflist").write_text(json.dumps({
            "cniVersion": "0.4.0", "name": "pods", "plugins": [
                {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True,
                 "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}],
                          "dataDir": "/run/host-local"}},
                # The chain is kubelet's, or the agent's; without one portmap has its own.
                {"type": "portmap", "capabilities": {"portMappings": True},
                 **({"externalSetMarkChain": mark_chain} if mark_chain else {})}]}))

    def start_kubelet(self):
        config = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                  "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
                  "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "failSwapOn": False,
                  # Whatever this machine's disk has left, and without CAP_SYS_RESOURCE.
                  "evictionHard": {"memory.available": "1Mi"}, "imageGCHighThresholdPercent": 100,
                  "oomScoreAdj": 0, "enforceNodeAllocatable": [], "resolvConf": "",
                  # Else in /usr/libexec, which is the machine's.
                  "volumePluginDir": f"{self.work}/plugins",
                  "registerNode": True, **self.release["kubelet settings"], **self.settings}
        path = self.write("kubelet.yaml", json.dumps(config))
        self.kubelet.start(
            str(self.programs / "kubelet"), f"--config={path}", f"--kubeconfig={self.access}",
            *self.release["kubelet flags"], f"--node-ip={ADDRESS}", f"--hostname-override={NAME}",
            "--container-runtime-endpoint=unix:///run/containerd/containerd.sock", "--v=2")

    def proxy_config(self, name="kube-proxy.yaml"):
        """A kube-proxy ends when its file is written again: another one needs another name."""
        config = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
                  "clientConnection": {"kubeconfig": self.access}, "hostnameOverride": NAME,
                  "clusterCIDR": "10.244.0.0/16", "mode": "iptables", "oomScoreAdj": 0,
                  # The size of the connection table is the whole machine's.
                  "conntrack": {"maxPerCore": 0, "min": 0}, "iptables": {"syncPeriod": "10s"},
                  "nftables": {"syncPeriod": "10s"}, **self.proxy_settings}
        return self.write(name, json.dumps(config))

    def start_proxy(self):
        self.proxy.start(str(self.programs / "kube-proxy"), f"--config={self.proxy_config()}", "--v=2")

    def start(self):
        self.make_network()
        self.start_api()
        self.write_cni()
        self.start_containerd()
        self.import_busybox()
        until(self.apiserver.tail, self.api.is_up, 60)
        self.start_kubelet()
        self.start_proxy()
        until(self.kubelet.tail, lambda: self.node_is_ready(), 90)

    def node_is_ready(self):
        try:
            node = self.api.ask("GET", f"/api/v1/nodes/{NAME}")
        except Failure:
            return False
        return is_ready(node)
