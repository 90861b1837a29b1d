{{- define "cni.labels" -}}
app.kubernetes.io/name: istio-cni
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | quote }}
istio.io/rev: {{ .Values.revision | default "default" | quote }}
{{- end }}

{{/* Whether pods can join a mesh without sidecars. */}}
{{- define "cni.ambient" -}}
{{- if or .Values.ambient.enabled (eq .Values.profile "ambient") }}true{{ end }}
{{- end }}

{{- define "cni.image" -}}
{{- if contains "/" .Values.image }}{{ .Values.image }}
{{- else }}{{ .Values.hub | default .Values.global.hub }}/{{ .Values.image }}:{{ .Values.tag | default .Values.global.tag }}
{{- end }}
{{- end }}
