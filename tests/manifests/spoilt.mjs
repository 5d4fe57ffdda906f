// SPDX-License-Identifier: Apache-2.0
//
// Manifests with one fault each, and how it must be told.
const pod = (object) => object("DaemonSet").spec.template.spec;
const container = (object) => pod(object).containers[0];

export const spoiltObjects = [
  { name: "a misspelled field", of: "coexist", found: /hostNetwrok/,
    spoil: (object) => { pod(object).hostNetwrok = true; } },
  { name: "a field one level too high", of: "coexist", found: /readOnlyRootFilesystem/,
    spoil: (object) => { pod(object).securityContext.readOnlyRootFilesystem = true; } },
  { name: "text where a truth value belongs", of: "coexist", found: /hostNetwork must be boolean/,
    spoil: (object) => { pod(object).hostNetwork = "true"; } },
  { name: "no selector", of: "coexist", found: /required property selector/,
    spoil: (object) => { delete object("DaemonSet").spec.selector; } },
  { name: "an apiVersion that is gone", of: "coexist", found: /has no DaemonSet/,
    spoil: (object) => { object("DaemonSet").apiVersion = "apps/v1beta9"; } },
  { name: "a PodMonitor with an unknown field", of: "coexist+podmonitor", found: /scheem/,
    spoil: (object) => { object("PodMonitor").spec.podMetricsEndpoints[0].scheem = "http"; } },
  { name: "privileged", of: "coexist", found: /securityContext/,
    spoil: (object) => { container(object).securityContext.privileged = true; } },
  { name: "one capability more", of: "coexist", found: /securityContext/,
    spoil: (object) => { container(object).securityContext.capabilities.add.push("SYS_ADMIN"); } },
  { name: "legacy without NET_RAW", of: "coexist+legacy", found: /securityContext/,
    spoil: (object) => { container(object).securityContext.capabilities.add.pop(); } },
  { name: "no seccomp profile", of: "coexist", found: /pod: securityContext/,
    spoil: (object) => { delete pod(object).securityContext.seccompProfile; } },
  { name: "a user whose capabilities are of no effect", of: "coexist", found: /pod: securityContext/,
    spoil: (object) => { pod(object).securityContext.runAsUser = 65534; } },
  { name: "a token", of: "coexist", found: /pod: token/,
    spoil: (object) => { delete pod(object).automountServiceAccountToken; } },
  { name: "the node's processes without being asked", of: "coexist", found: /hostPID/,
    spoil: (object) => { pod(object).hostPID = true; } },
  { name: "a probe of the pod's address", of: "coexist", found: /livenessProbe/,
    spoil: (object) => { delete container(object).livenessProbe.httpGet.host; } },
  { name: "no startup probe", of: "coexist", found: /startupProbe/,
    spoil: (object) => { delete container(object).startupProbe; } },
  { name: "an image without a tag", of: "coexist", found: /no tag/,
    spoil: (object) => { container(object).image = "localhost/kube-iptables-agent"; } },
  { name: "an image of another version", of: "coexist", found: /image tag/,
    spoil: (object) => { container(object).image = "localhost/kube-iptables-agent:latest"; } },
  { name: "the whole of the host", of: "coexist", found: /host paths/,
    spoil: (object) => { pod(object).volumes.find((volume) => volume.hostPath).hostPath.path = "/"; } },
  { name: "a writable host path", of: "coexist", found: /is writable/,
    spoil: (object) => {
      container(object).volumeMounts.find((mount) => mount.mountPath === "/host/usr").readOnly = false;
    } },
  { name: "incidents on the node's disk", of: "coexist", found: /is no emptyDir/,
    spoil: (object) => {
      const volume = pod(object).volumes.find((one) => one.name === "incidents");
      delete volume.emptyDir;
      volume.hostPath = { path: "/var/lib/kube-iptables-agent" };
    } },
  { name: "a lock that becomes a directory", of: "coexist+legacy", found: /host paths/,
    spoil: (object) => {
      delete pod(object).volumes.find((volume) => volume.name === "xtables-lock").hostPath.type;
    } },
  { name: "metrics for everyone", of: "coexist", found: /args/,
    spoil: (object) => { container(object).args.push("--metrics-bind-address=0.0.0.0:10271"); } },
  { name: "observe that writes", of: "observe", found: /observe is false/,
    spoil: (object) => {
      const map = object("ConfigMap");
      map.data["config.yaml"] = map.data["config.yaml"].replace("observe: true", "observe: false");
    } },
  { name: "an object that nobody told of", of: "coexist", found: /kinds/,
    spoil: (_, objects) => {
      objects.push({ apiVersion: "v1", kind: "Secret", metadata: { name: "s", namespace: "kube-system" } });
    } },
];

export const spoiltDockerfiles = [
  { name: "a misspelled instruction", found: /ENTRYPIONT/,
    spoil: (text) => text.replace("ENTRYPOINT", "ENTRYPIONT") },
  { name: "a stage that is not there", found: /from flag/,
    spoil: (text) => text.replace("COPY --from=build /rootfs /", "COPY --from= /rootfs /") },
  { name: "an entry point by a shell", found: /ENTRYPOINT is not/,
    spoil: (text) => text.replace(/^ENTRYPOINT .*$/m, "ENTRYPOINT /usr/sbin/kube-iptables-agent") },
  { name: "another base", found: /not made from scratch/,
    spoil: (text) => text.replace("FROM scratch", "FROM docker.io/library/debian:bookworm-slim") },
];

// One text of the chart exchanged.
export const spoiltCharts = [
  { name: "a chart with a capability less", of: "coexist+legacy", found: /capabilities/,
    file: "templates/daemonset.yaml", from: "- NET_RAW", to: "- NET_BIND_SERVICE" },
  { name: "a chart whose switch does nothing", of: "coexist+attribution", found: /hostPID/,
    file: "templates/daemonset.yaml", from: "if .Values.attribution", to: "if false" },
  { name: "a chart that writes by default", of: "observe", found: /observe/,
    file: "values.yaml", from: "observe: true", to: "observe: false" },
  { name: "a chart that is older than the manifests", of: "coexist", found: /version/,
    file: "Chart.yaml", from: /^appVersion: .*$/m, to: "appVersion: 0.0.1" },
  { name: "a chart without the monitor", of: "observe+podmonitor", found: /objects, not/,
    file: "templates/podmonitor.yaml", from: "if .Values.podMonitor", to: "if not .Values.podMonitor" },
  { name: "a chart whose monitor has no labels", of: "observe", found: /a PodMonitor has no label/,
    file: "templates/podmonitor.yaml", from: "with .Values.podMonitorLabels", to: "with false" },
  { name: "a chart with rules of another place", of: "observe", found: /kube-iptables-agent-alerts.*runbook_url is/,
    file: "templates/prometheusrule.yaml", from: "with $.Values.prometheusRule.runbooks", to: "with false" },
  { name: "a chart that forgets a file of rules", of: "observe", found: /PrometheusRule objects, not 2/,
    file: "templates/prometheusrule.yaml", from: ' "recording_rules"', to: "" },
  { name: "a chart that mounts another folder", of: "observe", found: /rancher.* is not mounted/,
    file: "templates/daemonset.yaml", from: "path: {{ .Values.cniConfDir }}", to: "path: /etc/cni/net.d" },
  { name: "an object of the chart with a name by its content", of: "observe", found: /a change renames an object/,
    file: "templates/serviceaccount.yaml", from: "name: kube-iptables-agent",
    to: 'name: kube-iptables-agent-{{ include "config" . | sha256sum | trunc 10 }}' },
  { name: "a chart that keeps an object", of: "observe", found: /a ServiceAccount has a resource-policy/,
    file: "templates/serviceaccount.yaml", from: "metadata:",
    to: "metadata:\n  annotations: { helm.sh/resource-policy: keep }" },
  { name: "a chart with pods that load another's configuration", of: "observe", found: /reaches pods that run/,
    file: "templates/serviceaccount.yaml", from: /$/, to: "---\n{ apiVersion: v1, kind: ConfigMap, metadata: { name: c }, " +
      'data: { "config.yaml": {{ include "config" . | quote }} } }\n' },
  { name: "a chart whose volume reads another annotation", of: "observe", found: /config\.config\.yaml is null/,
    file: "templates/daemonset.yaml", from: "annotations['kube-iptables-agent/config.yaml']",
    to: "annotations['kube-iptables-agent/config']" },
  { name: "a chart without the file of expected rules", of: "observe", found: /expected-rules is undefined/,
    file: "templates/daemonset.yaml", from: "- path: expected-rules", to: "- path: expected" },
  { name: "a chart with pods that keep their configuration", of: "observe", found: /does not roll the pods/,
    file: "templates/daemonset.yaml", from: /{{- include "config" .*/, to: "kube-iptables-agent/config.yaml: none" },
  { name: "a chart with expected rules that are not read", of: "observe", found: /expectedRules is undefined/,
    file: "templates/_names.tpl", from: /^ *expectedRules: .*$/m, to: "" },
  { name: "a chart with a tag for a digest", of: "observe", found: /image is/,
    file: "templates/daemonset.yaml", from: "with .Values.image.digest", to: "with false" },
  { name: "a chart without pull secrets", of: "observe", found: /imagePullSecrets is undefined/,
    file: "templates/daemonset.yaml", from: "with .Values.imagePullSecrets", to: "with false" },
  { name: "a value that the schema does not know", of: "observe", found: /values: the schema has/,
    file: "values.yaml", from: "attribution: false", to: "attribution: false\nsurprise: 1" },
];
