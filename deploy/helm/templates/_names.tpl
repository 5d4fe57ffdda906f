{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "labels" -}}
app.kubernetes.io/name: kube-iptables-agent
{{- end }}

{{- define "chart-labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* Pods have a checksum of it, so that a change replaces the pods. */ -}}
{{- define "config.yaml" -}}
apiVersion: kube-iptables-agent/v1alpha1
kind: KubeIPTablesAgentConfiguration
{{- with .Values.config }}
{{ toYaml . }}
{{- end }}
{{- end }}
