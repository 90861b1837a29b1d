{{/* The values over those of the profile, if it has some, and those under `pilot` over all: the operator API nests them there. */}}
{{- define "canopusd.values" -}}
{{- $profile := .Files.Get (printf "files/profiles/%s.yaml" .Values.profile) | fromYaml }}
{{- mergeOverwrite $profile (deepCopy (omit .Values "pilot")) (deepCopy (.Values.pilot | default dict)) | toYaml }}
{{- end }}

{{/* The end of names of this revision's objects. */}}
{{- define "canopusd.suffix" -}}
{{- if and .Values.revision (ne .Values.revision "default") }}-{{ .Values.revision }}{{ end }}
{{- end }}

{{- define "canopusd.revision" -}}
{{- .Values.revision | default "default" }}
{{- end }}

{{- define "canopusd.name" -}}
istiod{{ include "canopusd.suffix" . }}
{{- end }}

{{/* Names of objects of the cluster also tell the namespace, unless it is the usual one. */}}
{{- define "canopusd.webhookName" -}}
{{ .name }}{{ if ne .root.Release.Namespace "istio-system" }}-{{ .root.Release.Namespace }}{{ end }}
{{- end }}

{{- define "canopusd.labels" -}}
app: {{ .app | default "istiod" }}
app.kubernetes.io/name: istiod
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | quote }}
release: {{ .root.Release.Name | quote }}
istio.io/rev: {{ include "canopusd.revision" .root | quote }}
operator.istio.io/component: Pilot
install.operator.istio.io/owning-resource: {{ .root.Values.ownerName | default "unknown" | quote }}
{{- end }}

{{/* Labels by which Service, Deployment and budget find the pods of this revision. */}}
{{- define "canopusd.selector" -}}
app: istiod
{{- if include "canopusd.suffix" . }}
istio.io/rev: {{ .Values.revision | quote }}
{{- else }}
istio: pilot
{{- end }}
{{- end }}

{{/* Whether objects of the cluster, or of namespaces, are rendered. */}}
{{- define "canopusd.cluster" -}}
{{- if ne .Values.global.resourceScope "namespace" }}true{{ end }}
{{- end }}
{{- define "canopusd.namespaced" -}}
{{- if ne .Values.global.resourceScope "cluster" }}true{{ end }}
{{- end }}

{{/* An image: a whole reference as it is, a name with the hub and the tag. */}}
{{- define "canopusd.image" -}}
{{- if contains "/" .image }}{{ .image }}
{{- else }}{{ .hub | default .global.hub }}/{{ .image }}:{{ .tag | default .global.tag }}{{ with .global.variant }}-{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* Where the API server reaches this revision's webhooks. */}}
{{- define "canopusd.webhookClient" -}}
{{- if .url }}
url: {{ .url | quote }}
{{- else }}
service:
  name: {{ include "canopusd.name" .root }}
  namespace: {{ .root.Release.Namespace | quote }}
  path: {{ .path | quote }}
  port: 443
{{- end }}
{{- with .bundle }}
caBundle: {{ . | quote }}
{{- end }}
{{- end }}

{{/* One webhook of the injector. */}}
{{- define "canopusd.injector" -}}
- name: {{ .name }}sidecar-injector.istio.io
  clientConfig:
    {{- include "canopusd.webhookClient" (dict "root" .root "url" .values.istiodRemote.injectionURL "path" .values.istiodRemote.injectionPath "bundle" .values.istiodRemote.injectionCABundle) | nindent 4 }}
  sideEffects: None
  rules:
  - operations: [CREATE]
    apiGroups: [""]
    apiVersions: [v1]
    resources: [pods]
  failurePolicy: Fail
  reinvocationPolicy: {{ .values.sidecarInjectorWebhook.reinvocationPolicy }}
  admissionReviewVersions: [v1]
{{- end }}

{{/* The two webhooks for namespaces and pods that name a revision or a tag. */}}
{{- define "canopusd.revisionInjectors" -}}
{{ include "canopusd.injector" (dict "name" "rev.namespace." "root" .root "values" .values) }}
  namespaceSelector:
    matchExpressions:
    - {key: istio.io/rev, operator: In, values: [{{ .revision | quote }}]}
    - {key: istio-injection, operator: DoesNotExist}
  objectSelector:
    matchExpressions:
    - {key: sidecar.istio.io/inject, operator: NotIn, values: ["false"]}
{{ include "canopusd.injector" (dict "name" "rev.object." "root" .root "values" .values) }}
  namespaceSelector:
    matchExpressions:
    - {key: istio.io/rev, operator: DoesNotExist}
    - {key: istio-injection, operator: DoesNotExist}
  objectSelector:
    matchExpressions:
    - {key: sidecar.istio.io/inject, operator: NotIn, values: ["false"]}
    - {key: istio.io/rev, operator: In, values: [{{ .revision | quote }}]}
{{- end }}

{{/* The webhooks for namespaces and pods that name no revision. */}}
{{- define "canopusd.defaultInjectors" -}}
{{ include "canopusd.injector" (dict "name" "namespace." "root" .root "values" .values) }}
  namespaceSelector:
    matchExpressions:
    - {key: istio-injection, operator: In, values: [enabled]}
  objectSelector:
    matchExpressions:
    - {key: sidecar.istio.io/inject, operator: NotIn, values: ["false"]}
{{ include "canopusd.injector" (dict "name" "object." "root" .root "values" .values) }}
  namespaceSelector:
    matchExpressions:
    - {key: istio-injection, operator: DoesNotExist}
    - {key: istio.io/rev, operator: DoesNotExist}
  objectSelector:
    matchExpressions:
    - {key: sidecar.istio.io/inject, operator: In, values: ["true"]}
    - {key: istio.io/rev, operator: DoesNotExist}
{{- if .values.sidecarInjectorWebhook.enableNamespacesByDefault }}
{{ include "canopusd.injector" (dict "name" "auto." "root" .root "values" .values) }}
  namespaceSelector:
    matchExpressions:
    - {key: istio-injection, operator: DoesNotExist}
    - {key: istio.io/rev, operator: DoesNotExist}
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-public, kube-node-lease, local-path-storage]}
  objectSelector:
    matchExpressions:
    - {key: sidecar.istio.io/inject, operator: DoesNotExist}
    - {key: istio.io/rev, operator: DoesNotExist}
{{- end }}
{{- end }}
