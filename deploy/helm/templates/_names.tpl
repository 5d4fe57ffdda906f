{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "labels" -}}
app.kubernetes.io/name: kube-iptables-agent
{{- end }}

{{- define "chart-labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "config.yaml" -}}
apiVersion: kube-iptables-agent/v1alpha1
kind: KubeIPTablesAgentConfiguration
{{- with .Values.config }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* With a hash of its content: a change is rolled out node by node, and stops where a node does not
become ready. */ -}}
{{- define "config-name" -}}
kube-iptables-agent-{{ include "config.yaml" . | sha256sum | trunc 10 }}
{{- end }}
