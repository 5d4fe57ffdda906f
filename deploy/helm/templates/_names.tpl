{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "labels" -}}
app.kubernetes.io/name: kube-iptables-agent
{{- end }}

{{- define "chart-labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* The files of /etc/kube-iptables-agent, as annotations of the pod. */ -}}
{{- define "config" -}}
kube-iptables-agent/config.yaml: |
  apiVersion: kube-iptables-agent/v1alpha1
  kind: KubeIPTablesAgentConfiguration
  {{- with .Values.config }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.expectedRules }}
  expectedRules: /etc/kube-iptables-agent/expected-rules
{{ toYaml (dict "kube-iptables-agent/expected-rules" .) }}
{{- end }}
{{- end }}
