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
    (20, "kubelet on cgroup v1", {}),
    # Kubelet 1.35 and later refuses to start there.
    (31, "kubelet on cgroup v1", {"failCgroupV1": False}),
    # The oldest containerd that has the CRI.
    (20, "containerd", 1),
    (37, "containerd", 2),
    (20, "endpoint slices", "discovery.k8s.io/v1beta1"),
    (21, "endpoint slices", "discovery.k8s.io/v1"),
    (20, "endpoint's node", lambda node: {"topology": {"kubernetes.io/hostname": node}}),
    (21, "endpoint's node", lambda node: {"nodeName": node}),
    # kubelet's chains, and what of them is damaged to see the judges fail. The gate IPTablesOwnershipCleanup is
    # on from 1.27: what is left over is kube-proxy's, and the canary returns at kubelet's ticks.
    (20, "chains", DEFAULT_CHAINS),
    (27, "chains", "FIREWALL|IPTABLES-HINT"),
    (20, "damage", ["iptables", "-t", "nat", "-F", "KUBE-MARK-MASQ"]),
    (27, "damage", ["iptables", "-F", "KUBE-FIREWALL"]),
    # What kube-proxy cannot have dropped where no program fills KUBE-MARK-DROP (deploy/upgrades.md, "D"). Up to
    # 1.23 it holds node ports by sockets that never answer. From 1.25 on it drops by itself.
    (20, "fails open", {"client outside of the source ranges": "node", "policy Local, no local pod": ACCEPTED}),
    (24, "fails open", {"client outside of the source ranges": "node", "policy Local, no local pod": REFUSED}),
    (25, "fails open", {}),
    # With which settings kube-proxy does not drop martian packets itself.
    (20, "martians pass", {}),
    (27, "martians pass", {"iptables": {"syncPeriod": "10s", "localhostNodePorts": False}}),
    # With another program's jump to KUBE-MARK-MASQ, --cleanup leaves all chains of nat and ends with 1.
    (20, "cleanup beside foreign jumps", True),
    (34, "cleanup beside foreign jumps", False),
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
