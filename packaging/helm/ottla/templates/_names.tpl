{{- define "ottla.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "ottla.labels" -}}
app.kubernetes.io/name: ottla
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The DNS name of a node: call with (list . ordinal). */}}
{{- define "ottla.host" -}}
{{- $top := index . 0 -}}
{{ include "ottla.name" $top }}-{{ index . 1 }}.{{ include "ottla.name" $top }}-nodes.{{ $top.Release.Namespace }}.svc
{{- end -}}

{{- define "ottla.voters" -}}
{{- $voters := list -}}
{{- range $ordinal := until (int .Values.replicas) -}}
{{- $voters = append $voters (printf "%d@%s:9093" $ordinal (include "ottla.host" (list $ $ordinal))) -}}
{{- end -}}
{{ join "," $voters }}
{{- end -}}
