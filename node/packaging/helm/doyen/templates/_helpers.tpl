{{- define "doyen.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "doyen.selector" -}}
app.kubernetes.io/name: doyen
app.kubernetes.io/instance: {{ include "doyen.name" . }}
{{- end -}}

{{- define "doyen.labels" -}}
{{ include "doyen.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "doyen.peers" -}}
{{- .Values.peers | default (printf "%s-peers" (include "doyen.name" .)) -}}
{{- end -}}

{{/* The Service of clients, also where another release has it. */}}
{{- define "doyen.service" -}}
{{- include "doyen.peers" . | trimSuffix "-peers" -}}
{{- end -}}

{{/* Pods of all releases that are one cluster. */}}
{{- define "doyen.cluster" -}}
app.kubernetes.io/name: doyen
doyen/cluster: {{ include "doyen.peers" . }}
{{- end -}}
