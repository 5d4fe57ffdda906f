# SPDX-License-Identifier: Apache-2.0
"""Pods and services, what is asked of them, and what must be answered."""

import http.server
import socket
import subprocess
import threading
import time

from node import ADDRESS, BANNED, BUSYBOX, CLIENT, GATEWAY, NAME, Failure, is_ready, run, until
from versions import ACCEPTED, REFUSED, SILENCE

BALANCER = "203.0.113.1"
ARRIVED = "arrived"

# With the client's hardware address, the node's, and the port: no program sends to another host's 127.0.0.1.
MARTIAN = """
import socket, struct, sys
def summed(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
own, other, source, port = (bytes.fromhex(sys.argv[1].replace(":", "")),
    bytes.fromhex(sys.argv[2].replace(":", "")), socket.inet_aton(sys.argv[3]), int(sys.argv[4]))
body = struct.pack("!HHHH", 4000, port, 9, 0) + b"m"
head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, 17, 0) + source + bytes([127, 0, 0, 1])
head = head[:10] + struct.pack("!H", summed(head)) + head[12:]
line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
line.bind(("eth0", 0))
line.send(other + own + b"\\x08\\x00" + head + body)
"""


class NodesOwn(http.server.BaseHTTPRequestHandler):
    """What is reached by a packet to the load balancer that was neither dropped nor translated."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"node")

    def log_message(self, *_):
        pass


def ask(space, url, *options):
    """What curl hears from that network namespace (None: the node's)."""
    command = [] if space is None else ["ip", "netns", "exec", space]
    done = subprocess.run([*command, "curl", "--silent", "--noproxy", "*", "--max-time", "1.5",
                           "--write-out", "\n%{time_connect}", *options, url],
                          capture_output=True, text=True, check=False)
    answer, _, connected = done.stdout.rpartition("\n")
    named = {0: answer.strip(), 7: REFUSED, 28: ACCEPTED if float(connected) > 0 else SILENCE}
    return named.get(done.returncode, f"curl's {done.returncode}")


class Packets:
    def __init__(self, node):
        self.node = node
        self.address, self.space = {}, {}

    # ---- pods and services ----

    def make_pod(self, name, **more):
        self.node.api.create({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"nodeName": NAME, "terminationGracePeriodSeconds": 1, "enableServiceLinks": False,
                     "automountServiceAccountToken": False,
                     "containers": [{"name": "web", "image": BUSYBOX, "imagePullPolicy": "Never",
                                     "command": ["/bin/busybox", "httpd", "-f", "-p", "0.0.0.0:8080", "-h",
                                                 "/www"], **more}]}})

    def await_pod(self, name):
        pod = until(f"pod {name} is not ready", lambda: next(
            (one for one in [self.node.api.pod(name)] if is_ready(one)), None), 60)
        address = self.address[name] = pod["status"]["podIP"]
        for line in run("ip", "netns", "list").splitlines():
            space = line.split()[0]
            if f" {address}/" in run("ip", "-netns", space, "-4", "-oneline", "address"):
                self.space[name] = space
                return
        raise Failure(f"no network namespace has pod {name}'s address {address}")

    def make_service(self, name, pods, away=(), status=None, **spec):
        service = self.node.api.create({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP",
                                **({"nodePort": spec.pop("nodePort")} if "nodePort" in spec else {})}],
                     **spec}})
        if status:
            service["status"] = status
            self.node.api.ask("PUT", f"/api/v1/namespaces/default/services/{name}/status", service)
        place = self.node.release["endpoint's node"]
        endpoints = [{"addresses": [self.address[pod]], "conditions": {"ready": True}, **place(NAME)}
                     for pod in pods]
        endpoints += [{"addresses": [address], "conditions": {"ready": True}, **place("another")}
                      for address in away]
        if endpoints:
            self.node.api.create({
                "apiVersion": self.node.release["endpoint slices"], "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
                "ports": [{"name": "", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints})

    def make_host_port_pod(self):
        self.make_pod("c", ports=[{"containerPort": 8080, "hostPort": 8088}])
        self.await_pod("c")

    def make(self):
        for name in "ab":
            self.make_pod(name)
        for name in "ab":
            self.await_pod(name)
        self.make_host_port_pod()
        self.make_service("web", "ab", clusterIP="10.96.0.10")
        self.make_service("self", "a", clusterIP="10.96.0.11")
        self.make_service("empty", "", clusterIP="10.96.0.12")
        self.make_service("port", "a", type="NodePort", nodePort=30080)
        self.make_service("local", "a", type="NodePort", nodePort=30081, externalTrafficPolicy="Local")
        self.make_service("away", "", away=["10.244.9.9"], type="NodePort", nodePort=30082,
                          externalTrafficPolicy="Local")
        self.make_service("balanced", "a", type="LoadBalancer", loadBalancerSourceRanges=[f"{CLIENT}/32"],
                          status={"loadBalancer": {"ingress": [{"ip": BALANCER}]}})
        run("ip", "address", "add", f"{BALANCER}/32", "dev", "lo")
        server = http.server.ThreadingHTTPServer((BALANCER, 80), NodesOwn)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    # ---- packets ----

    def martian(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.settimeout(0.5)
            cards = [run("ip", *space, "-oneline", "link", "show", "eth0").split("link/ether ")[1].split()[0]
                     for space in (["-netns", "client"], [])]
            run("ip", "netns", "exec", "client", "python3", "-c", MARTIAN, *cards, CLIENT,
                str(listener.getsockname()[1]))
            try:
                listener.recv(9)
                return ARRIVED
            except TimeoutError:
                return SILENCE

    def expected(self):
        """By question: the answers that are right. A pod answers with its name and whom it sees."""
        return {
            "pod to pod": {f"a {self.address['b']}"},
            "pod to service": {f"a {self.address['b']}", f"b {GATEWAY}"},
            "pod to itself through a service": {f"a {GATEWAY}"},
            "node to service": {f"a {GATEWAY}"},
            "client to node port": {f"a {GATEWAY}"},
            "client to node port, policy Local": {f"a {CLIENT}"},
            "client to host port": {f"c {CLIENT}"},
            "node to host port on 127.0.0.1": {f"c {GATEWAY}"},
            "client to load balancer": {f"a {GATEWAY}"},
            "client outside of the source ranges": {SILENCE},
            "policy Local, no local pod": {SILENCE},
            "service without pods": {REFUSED},
            "martian packet": {SILENCE},
        }

    def answers(self):
        asked = {
            "pod to pod": (self.space["b"], f"{self.address['a']}:8080"),
            "pod to service": (self.space["b"], "10.96.0.10"),
            "pod to itself through a service": (self.space["a"], "10.96.0.11"),
            "node to service": (None, "10.96.0.11"),
            "client to node port": ("client", f"{ADDRESS}:30080"),
            "client to node port, policy Local": ("client", f"{ADDRESS}:30081"),
            "client to host port": ("client", f"{ADDRESS}:8088"),
            "node to host port on 127.0.0.1": (None, "127.0.0.1:8088"),
            "client to load balancer": ("client", BALANCER, "--interface", CLIENT),
            "client outside of the source ranges": ("client", BALANCER, "--interface", BANNED),
            "policy Local, no local pod": ("client", f"{ADDRESS}:30082"),
            "service without pods": (None, "10.96.0.12"),
        }
        heard = {name: ask(one[0], f"http://{one[1]}/cgi-bin/who", *one[2:]) for name, one in asked.items()}
        return heard | {"martian packet": self.martian()}

    def judge(self, seconds=0, **others):
        """All questions, until all answers are right; `others` are right in a named state only."""
        expected = self.expected() | {name.replace("_", " "): {answer} for name, answer in others.items()}
        end = time.monotonic() + seconds
        while True:
            wrong = {name: heard for name, heard in self.answers().items() if heard not in expected[name]}
            if not wrong:
                break
            if time.monotonic() > end:
                raise Failure("\n".join(f"{name}: {heard}, not {' or '.join(sorted(expected[name]))}"
                                        for name, heard in wrong.items()))
        return len(expected)


class Stream:
    """Asks through the masqueraded node port, all the time."""

    def __init__(self, packets):
        self.right, self.wrong, self.ended = 0, [], threading.Event()
        self.packets = packets
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.ended.wait(0.1):
            answer = ask("client", f"http://{ADDRESS}:30080/cgi-bin/who")
            if answer == f"a {GATEWAY}":
                self.right += 1
            else:
                self.wrong.append(answer)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
