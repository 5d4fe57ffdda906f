// SPDX-License-Identifier: Apache-2.0
//
// What we say of ourselves (deploy/kubernetes/README.md), asked of the rendered objects.
import { isDeepStrictEqual } from "node:util";
import { parse } from "yaml";

const name = "kube-iptables-agent";

const hostPaths = {
  "/host/usr": ["/usr", "Directory"],
  "/host/sbin": ["/sbin", "Directory"],
  "/host/etc/alternatives": ["/etc/alternatives", "DirectoryOrCreate"],
  "/host/lib/modules": ["/lib/modules", "DirectoryOrCreate"],
  "/host/etc/cni/net.d": ["/etc/cni/net.d", "DirectoryOrCreate"],
};
const lockPath = { "/run/xtables.lock": ["/run/xtables.lock", "FileOrCreate"] };

// `chosen`: the components. `version`: of the project.
export function problemsOfPolicy({ overlay, chosen, objects }, version) {
  const problems = [];
  const must = (holds, message) => holds || problems.push(message);
  const same = (is, shall, what) =>
    must(isDeepStrictEqual(is, shall), `${what} is ${JSON.stringify(is)}, not ${JSON.stringify(shall)}`);
  const withLegacy = chosen.includes("legacy");
  const withMonitor = chosen.includes("podmonitor");

  const kinds = objects.map((object) => object.kind).sort();
  same(kinds, ["ConfigMap", "DaemonSet", ...(withMonitor ? ["PodMonitor"] : []), "ServiceAccount"], "kinds");
  const only = (kind) => objects.find((object) => object.kind === kind) ?? {};
  for (const object of objects) same(object.metadata?.namespace, "kube-system", `${object.kind}: namespace`);

  const account = only("ServiceAccount");
  same(account.automountServiceAccountToken, false, "ServiceAccount: token");

  const set = only("DaemonSet");
  const template = set.spec?.template ?? {};
  const pod = template.spec ?? {};
  same(set.spec?.selector?.matchLabels, { "app.kubernetes.io/name": name }, "selector");
  for (const labels of [set.metadata?.labels, template.metadata?.labels]) {
    same(labels?.["app.kubernetes.io/name"], name, "label name");
    same(labels?.["app.kubernetes.io/version"], version, "label version");
  }
  same(set.spec?.updateStrategy?.type, "RollingUpdate", "updateStrategy");
  same(pod.serviceAccountName, account.metadata?.name, "serviceAccountName");
  same(pod.automountServiceAccountToken, false, "pod: token");
  same(pod.hostNetwork, true, "hostNetwork");
  same(pod.hostPID ?? false, chosen.includes("attribution"), "hostPID");
  same(pod.hostIPC ?? false, false, "hostIPC");
  same(pod.priorityClassName, "system-node-critical", "priorityClassName");
  same(pod.tolerations, [{ operator: "Exists" }], "tolerations");
  same(pod.nodeSelector, { "kubernetes.io/os": "linux" }, "nodeSelector");
  same(pod.securityContext, { runAsUser: 0, runAsGroup: 0, seccompProfile: { type: "RuntimeDefault" } },
    "pod: securityContext");
  must(!pod.initContainers && !pod.ephemeralContainers, "there are other containers");
  same(pod.containers?.length, 1, "number of containers");

  const container = pod.containers?.[0] ?? {};
  must(/^[^:@]+:[^:@]+$/.test(container.image ?? ""), `image ${container.image} has no tag`);
  same(container.image?.split(":").pop(), version, "image tag");
  same(container.command, undefined, "command");
  same(container.args, ["run", "--host-root=/host",
    ...(withMonitor ? ["--metrics-bind-address=[$(HOST_IP)]:10271"] : [])], "args");
  same(container.securityContext, {
    privileged: false,
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ["ALL"], add: withLegacy ? ["NET_ADMIN", "NET_RAW"] : ["NET_ADMIN"] },
  }, "container: securityContext");
  for (const probe of ["startupProbe", "livenessProbe", "readinessProbe"]) {
    const path = probe === "readinessProbe" ? "/readyz" : "/livez";
    same(container[probe]?.httpGet, { host: "127.0.0.1", port: 10270, path }, probe);
  }
  const loopback = Object.fromEntries((container.ports ?? []).map((port) => [port.name, port.hostIP]));
  same(loopback, { healthz: "127.0.0.1", metrics: withMonitor ? undefined : "127.0.0.1" }, "hostIP of ports");
  must(container.resources?.requests?.cpu && container.resources?.requests?.memory, "no requests");
  same(container.resources?.limits, { memory: withLegacy ? "512Mi" : "128Mi" }, "limits");

  problems.push(...problemsOfVolumes(pod, container, withLegacy));
  problems.push(...problemsOfConfig(only("ConfigMap"), pod, overlay));
  if (withMonitor) {
    const { selector, podMetricsEndpoints, jobLabel } = only("PodMonitor").spec ?? {};
    same(selector, set.spec?.selector, "PodMonitor: selector");
    same(jobLabel, "app.kubernetes.io/name", "PodMonitor: jobLabel");
    same(podMetricsEndpoints?.map((endpoint) => endpoint.port), ["metrics"], "PodMonitor: ports");
  }
  return problems;
}

function problemsOfVolumes(pod, container, withLegacy) {
  const problems = [];
  const expected = { ...hostPaths, ...(withLegacy ? lockPath : {}) };
  const mounted = {};
  for (const mount of container.volumeMounts ?? []) {
    const volume = pod.volumes?.find((candidate) => candidate.name === mount.name);
    if (volume === undefined) problems.push(`${mount.mountPath}: no volume ${mount.name}`);
    if (mount.mountPropagation) problems.push(`${mount.mountPath}: mountPropagation`);
    const isIncidents = mount.mountPath === "/var/lib/kube-iptables-agent";
    if (mount.readOnly !== true && !(mount.mountPath in lockPath) && !isIncidents) {
      problems.push(`${mount.mountPath} is writable`);
    }
    if (isIncidents) {
      if (!volume?.emptyDir?.sizeLimit) problems.push(`${mount.mountPath} has no limit, or is no emptyDir`);
    } else if (volume?.hostPath) {
      mounted[mount.mountPath] = [volume.hostPath.path, volume.hostPath.type];
    } else if (mount.mountPath !== "/etc/kube-iptables-agent" || mount.subPath) {
      // A ConfigMap under a subPath never changes.
      problems.push(`${mount.mountPath}: what is that?`);
    }
  }
  if (!isDeepStrictEqual(mounted, expected)) problems.push(`host paths are ${JSON.stringify(mounted)}`);
  const names = (pod.volumes ?? []).map((volume) => volume.name).sort();
  const used = (container.volumeMounts ?? []).map((mount) => mount.name).sort();
  if (!isDeepStrictEqual(names, used)) problems.push("a volume is not mounted, or twice");
  return problems;
}

function problemsOfConfig(map, pod, overlay) {
  const problems = [];
  const generated = new RegExp(`^${name}-[0-9a-z]{10}$`);
  if (!generated.test(map.metadata?.name ?? "")) problems.push("the ConfigMap has no hash in its name");
  const volume = pod.volumes?.find((candidate) => candidate.configMap);
  if (volume?.configMap.name !== map.metadata?.name) problems.push("the pod has another ConfigMap");
  const config = parse(map.data?.["config.yaml"] ?? "") ?? {};
  if (config.kind !== "KubeIPTablesAgentConfiguration") problems.push("config.yaml is of another kind");
  if (config.observe !== (overlay === "observe")) problems.push(`observe is ${config.observe} in ${overlay}`);
  return problems;
}
