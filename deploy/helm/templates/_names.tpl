{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "labels" -}}
app.kubernetes.io/name: kube-iptables-agent
{{- end }}

{{- define "chart-labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* The files of the ConfigMap. Pods have a checksum of them, so that a change replaces the pods. */ -}}
{{- define "config" -}}
config.yaml: |
  apiVersion: kube-iptables-agent/v1alpha1
  kind: KubeIPTablesAgentConfiguration
  {{- with .Values.config }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.expectedRules }}
  expectedRules: /etc/kube-iptables-agent/expected-rules
{{ toYaml (dict "expected-rules" .) }}
{{- end }}
{{- end }}
