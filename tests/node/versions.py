# SPDX-License-Identifier: Apache-2.0
"""What differs by Kubernetes' release: all of it is in ROWS."""

from node import Failure

OLDEST, NEWEST = 20, 37
# What a client hears; "accepted" is by a socket that never answers.
ACCEPTED, REFUSED, SILENCE = "accepted", "refused", "silence"
DEFAULT_CHAINS = "MARK-MASQ|MARK-DROP|FIREWALL|POSTROUTING|KUBELET-CANARY|IPTABLES-HINT"

# From release 1.N on, what, its value: of each, the last row that applies counts.
ROWS = (
    # What the agent emulates: it knows no release before 1.24.
    (20, "emulated", lambda minor: f"1.{max(24, minor)}"),
    (20, "kubelet flags", ["--container-runtime=remote"]),
    # dockershim is gone.
    (24, "kubelet flags", []),
    (20, "kubelet settings", {}),
    # 1.36 does not start on cgroup v1 without this. tests/node/run makes groups of v1 only.
    (31, "kubelet settings", {"failCgroupV1": False}),
    # The oldest containerd that has the CRI.
    (20, "containerd", 1),
    (37, "containerd", 2),
    (20, "endpoint slices", "discovery.k8s.io/v1beta1"),
    (21, "endpoint slices", "discovery.k8s.io/v1"),
    (20, "endpoint's node", lambda node: {"topology": {"kubernetes.io/hostname": node}}),
    (21, "endpoint's node", lambda node: {"nodeName": node}),
    # kubelet's chains that are compared, and the damage that the judges must see. The gate
    # IPTablesOwnershipCleanup is on from 1.27: kubelet leaves the other chains to kube-proxy.
    (20, "chains", DEFAULT_CHAINS),
    (27, "chains", "FIREWALL|IPTABLES-HINT"),
    (20, "damage", ["iptables", "-t", "nat", "-F", "KUBE-MARK-MASQ"]),
    (27, "damage", ["iptables", "-F", "KUBE-FIREWALL"]),
    # What kube-proxy does not drop where no program fills KUBE-MARK-DROP (deploy/upgrades.md, "D"). Up to 1.23 its
    # own sockets accept connections to node ports, and never answer. From 1.25 on it needs no other program.
    (20, "fails open", {"client outside of the source ranges": "node", "policy Local, no local pod": ACCEPTED}),
    (24, "fails open", {"client outside of the source ranges": "node", "policy Local, no local pod": REFUSED}),
    (25, "fails open", {}),
    # With which settings kube-proxy does not drop martian packets itself.
    (20, "martians pass", {}),
    (27, "martians pass", {"iptables": {"syncPeriod": "10s", "localhostNodePorts": False}}),
    # With another program's jump to KUBE-MARK-MASQ, --cleanup leaves all chains of nat and ends with 1.
    (20, "cleanup despite foreign jumps", True),
    (34, "cleanup despite foreign jumps", False),
    # A running kube-proxy watches its canary, which --cleanup then deletes.
    (20, "notices cleanup", False),
    (34, "notices cleanup", True),
    # The settings of kube-proxy's nftables mode, where it has one.
    (20, "nftables", None),
    (29, "nftables", {"mode": "nftables", "featureGates": {"NFTablesProxyMode": True}}),
    (31, "nftables", {"mode": "nftables"}),
)


def release(version):
    """What applies to that release, as 1.36.3."""
    minor = int(version.split(".")[1])
    if not version.startswith("1.") or not OLDEST <= minor <= NEWEST:
        raise Failure(f"Kubernetes {version} is not of 1.{OLDEST} to 1.{NEWEST}")
    found = {what: value for since, what, value in ROWS if since <= minor}
    return {**found, "version": version, "emulated": found["emulated"](minor)}
