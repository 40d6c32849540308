"""Reports of engines' REST APIs: runs of Flink jobs, and connectors of Kafka Connect."""

from django.db import models

from dashboard.models.collecting import OfCluster


class FlinkRunRecord(OfCluster):
    """A run of a Flink job, from its JobManager's last report."""

    #: The JobManager's URL as in the configuration.
    url = models.CharField(max_length=300)
    #: Flink's job id, the name of the job's checkpoint folder.
    job_id = models.CharField(max_length=32)
    #: Flink's version.
    version = models.CharField(max_length=40)
    name = models.TextField()
    #: Flink's term: RUNNING, RESTARTING, FAILED …
    state = models.CharField(max_length=20)
    #: By the JobManager's clock; the end is null while the run goes on.
    started_ms = models.BigIntegerField()
    ended_ms = models.BigIntegerField(null=True)
    #: `fenceline.engines.flink.job_status.FlinkOperator` as lists.
    operators = models.JSONField(default=list)
    #: `counts`, and the last ones `completed`, `failed`, `restored`: each a ReportedCheckpoint as a list.
    checkpoints = models.JSONField(default=dict)
    #: The time of the API's last answer, by Fenceline's clock.
    seen_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "Flink run"
        verbose_name_plural = "Flink runs"
        constraints = [models.UniqueConstraint(fields=["cluster", "url", "job_id"], name="flink_run_of_api")]

    def __str__(self) -> str:
        return self.name or self.job_id


class ConnectorRecord(OfCluster):
    """A connector of Kafka Connect, from a worker's last report."""

    #: The worker's URL and its `group`, as in the configuration; the group is "" if not configured.
    url = models.CharField(max_length=300)
    group = models.CharField(max_length=255, blank=True)
    version = models.CharField(max_length=40)
    name = models.CharField(max_length=255)
    #: `source` or `sink`.
    kind = models.CharField(max_length=10)
    #: Its Java class.
    connector = models.TextField()
    #: Connect's term: RUNNING, FAILED, PAUSED …
    state = models.CharField(max_length=20)
    worker = models.TextField()
    #: The reason for its failure.
    reason = models.TextField(blank=True)
    #: `fenceline.engines.connect.ConnectorTask` as lists.
    tasks = models.JSONField(default=list)
    #: `fenceline.engines.connect.DebeziumTopics` as a list; null unless it is a Debezium connector.
    debezium = models.JSONField(null=True)
    seen_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "connector"
        verbose_name_plural = "connectors"
        constraints = [models.UniqueConstraint(fields=["cluster", "url", "name"], name="connector_of_api")]

    def __str__(self) -> str:
        return self.name
