{{- define "gateway.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end }}

{{- define "gateway.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "gateway.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "gateway.selector" -}}
app: {{ .Values.labels.app | default (include "gateway.name" .) | quote }}
istio: {{ .Values.labels.istio | default (include "gateway.name" . | trimPrefix "istio-") | quote }}
{{- end }}

{{- define "gateway.labels" -}}
{{ include "gateway.selector" . }}
app.kubernetes.io/name: {{ include "gateway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | quote }}
{{- with omit .Values.labels "app" "istio" }}
{{ toYaml . }}
{{- end }}
{{- end }}
