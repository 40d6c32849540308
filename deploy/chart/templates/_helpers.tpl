{{- define "fenceline.name" -}}
{{- $name := .Release.Name }}
{{- if contains "fenceline" $name }}{{ $name }}{{ else }}{{ $name }}-fenceline{{ end }}
{{- end }}

{{- define "fenceline.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* What selects the pods of a part. Context: root, part. */}}
{{- define "fenceline.selector" -}}
app.kubernetes.io/name: fenceline
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "fenceline.labels" -}}
{{ include "fenceline.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- /* The commands of a shard, as a mapping in JSON. Context: root, shard. */}}
{{- define "fenceline.commands" -}}
{{- $words := dict "shard" .shard "threads" .root.Values.tail.threads }}
{{- tpl (.root.Files.Get "files/commands.yaml") $words | fromYaml | toJson }}
{{- end }}

{{- define "fenceline.hosts" -}}
{{- $name := include "fenceline.name" . }}
{{- $inside := printf "%s.%s" $name .Release.Namespace }}
{{- $hosts := list "127.0.0.1" "localhost" $name $inside (printf "%s.svc" $inside) }}
{{- $ingress := ternary (list .Values.ingress.host) list .Values.ingress.enabled }}
{{- join "," (concat $hosts $ingress .Values.allowedHosts) }}
{{- end }}

{{- /* The origin of the pages behind an Ingress with TLS, "" without. */}}
{{- define "fenceline.origin" -}}
{{- if and .Values.ingress.enabled .Values.ingress.tlsSecretName }}https://{{ .Values.ingress.host }}{{ end }}
{{- end }}

{{- /* A variable of the existing Secret. Context: a list of root, key, and whether it may be missing. */}}
{{- define "fenceline.secretVariable" -}}
- name: {{ index . 1 }}
  valueFrom:
    secretKeyRef: {name: {{ (index . 0).Values.secretName }}, key: {{ index . 1 }}, optional: {{ index . 2 }}}
{{- end }}

{{- /* The variables of docker-compose.yml that all parts have. */}}
{{- define "fenceline.environment" -}}
{{ include "fenceline.secretVariable" (list . "SECRET_KEY" false) }}
{{- with .Values.database.url }}
- {name: DATABASE_URL, value: {{ . | quote }}}
{{- else }}
{{ include "fenceline.secretVariable" (list . "DATABASE_URL" false) }}
{{- end }}
{{ include "fenceline.secretVariable" (list . "POSTGRES_PASSWORD" true) }}
{{- if .Values.redis.bundled }}
- {name: REDIS_URL, value: "redis://{{ include "fenceline.name" . }}-redis:6379/0"}
{{- else if .Values.redis.url }}
- {name: REDIS_URL, value: {{ .Values.redis.url | quote }}}
{{- else }}
{{ include "fenceline.secretVariable" (list . "REDIS_URL" false) }}
{{- end }}
- {name: FENCELINE_CONFIG, value: /etc/fenceline/fenceline.toml}
- {name: FENCELINE_DATA, value: /data}
- {name: FENCELINE_BASE_PATH, value: {{ .Values.basePath | quote }}}
- {name: ALLOWED_HOSTS, value: {{ include "fenceline.hosts" . | quote }}}
- {name: CSRF_TRUSTED_ORIGINS, value: {{ include "fenceline.origin" . | quote }}}
- {name: SECURE_COOKIES, value: {{ include "fenceline.origin" . | empty | ternary "0" "1" | quote }}}
- {name: FORWARDED_ALLOW_IPS, value: {{ .Values.forwardedAllowIps | quote }}}
- {name: READ_ONLY, value: {{ ternary "1" "0" .Values.readOnly | quote }}}
- {name: SHARDS, value: {{ .Values.tail.shards | quote }}}
- {name: POLLER_THREADS, value: {{ .Values.pollers.threads | quote }}}
- {name: API_REQUESTS_PER_MINUTE, value: {{ .Values.apiRequestsPerMinute | quote }}}
- {name: OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, value: {{ .Values.otlpMetricsEndpoint | quote }}}
- {name: LOG_FORMAT, value: {{ .Values.logFormat }}}
{{- range $name, $value := .Values.environment }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- /* Image, rights, variables and files of a container. Context: root, config. */}}
{{- define "fenceline.container" -}}
image: {{ include "fenceline.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- with .root.Values.environmentSecretName }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
volumeMounts:
  - {name: config, mountPath: /etc/fenceline, readOnly: true}
  - {name: tmp, mountPath: /tmp}
{{- with .root.Values.volumeMounts }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}

{{- /* What a pod has beside its containers. Context: root, config, tmp. */}}
{{- define "fenceline.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{ toJson . }}
{{- end }}
volumes:
  - name: config
    configMap: {name: {{ .config }}}
  - name: tmp
    emptyDir: {medium: Memory, sizeLimit: {{ .tmp }}}
{{- with .root.Values.volumes }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}

{{- define "fenceline.podMetadata" -}}
labels:
{{ include "fenceline.labels" . | indent 2 }}
annotations:
  # Another configuration restarts the pods.
  checksum/config: {{ .root.Values.config | sha256sum }}
{{- with .root.Values.podAnnotations }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}

{{- /* A request for a probe. ALLOWED_HOSTS has localhost and not the pod's address. Context: root, path. */}}
{{- define "fenceline.probe" -}}
httpGet:
  path: {{ .root.Values.basePath }}{{ .path }}
  port: http
  httpHeaders:
    - {name: Host, value: localhost}
timeoutSeconds: 4
{{- end }}

{{- /* A worker or beat: one pod. Context: root, part, config, tmp, command, health, resources, data. */}}
{{- define "fenceline.worker" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .config }}-{{ .part }}
  labels:
{{ include "fenceline.labels" . | indent 4 }}
spec:
  replicas: 1
  # Leases make a second one wait, and beat must not run twice.
  strategy: {type: Recreate}
  selector:
    matchLabels:
{{ include "fenceline.selector" . | indent 6 }}
  template:
    metadata:
{{ include "fenceline.podMetadata" . | indent 6 }}
    spec:
      terminationGracePeriodSeconds: 15
{{ include "fenceline.pod" . | indent 6 }}
{{- if .data }}
        - name: data
          emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- end }}
      containers:
        - name: {{ .part }}
          command: {{ toJson .command }}
{{ include "fenceline.container" . | indent 10 }}
{{- if .data }}
            - {name: data, mountPath: /data}
{{- end }}
          resources: {{ toJson .resources }}
{{- with .health }}
          # Not a liveness probe: a restart does not bring back a database that is away.
          readinessProbe:
            exec: {command: {{ toJson . }}}
            periodSeconds: 30
            timeoutSeconds: 20
{{- end }}
          env:
{{ include "fenceline.environment" .root | indent 12 }}
{{- end }}
