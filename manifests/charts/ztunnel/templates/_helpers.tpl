{{- define "ztunnel.name" -}}
{{ .Values.resourceName | default "ztunnel" }}
{{- end }}

{{- define "ztunnel.labels" -}}
app: ztunnel
app.kubernetes.io/name: ztunnel
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | quote }}
release: {{ .Release.Name | quote }}
istio.io/rev: {{ .Values.revision | default "default" | quote }}
operator.istio.io/component: Ztunnel
install.operator.istio.io/owning-resource: {{ .Values.ownerName | default "unknown" | quote }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Annotations of every object; with a revision, tools find it there as they do with Istio's chart. */}}
{{- define "ztunnel.annotations" -}}
{{- $annotations := deepCopy .Values.annotations }}
{{- with .Values.revision }}
{{- $_ := set $annotations "istio.io/rev" . }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ztunnel.metadata" -}}
name: {{ include "ztunnel.name" . }}
labels:
  {{- include "ztunnel.labels" . | nindent 2 }}
{{- include "ztunnel.annotations" . }}
{{- end }}

{{- define "ztunnel.image" -}}
{{- $v := .Values }}
{{- if contains "/" $v.image }}{{ $v.image }}
{{- else }}{{ coalesce $v.hub $v.global.hub "docker.io/istio" }}/{{ $v.image }}:{{ coalesce $v.tag $v.global.tag "1.28.0" }}{{ with $v.variant }}-{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* The control plane of the revision. */}}
{{- define "ztunnel.controlPlane" -}}
istiod{{ if and .Values.revision (ne .Values.revision "default") }}-{{ .Values.revision }}{{ end }}.{{ .Values.istioNamespace }}.svc:15012
{{- end }}

{{/* Whether objects of the cluster, or of namespaces, are rendered. */}}
{{- define "ztunnel.cluster" -}}
{{- if ne .Values.resourceScope "namespace" }}true{{ end }}
{{- end }}
{{- define "ztunnel.namespaced" -}}
{{- if ne .Values.resourceScope "cluster" }}true{{ end }}
{{- end }}
