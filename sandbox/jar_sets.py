"""The jars of the sandbox, the scenes and the tests, as sets of Maven coordinates."""

#: Kafka versions of `make up` and `make test`, the sandbox's own first.
EVERYDAY_KAFKA = ("4.2.0", "3.9.1")
#: Further versions of `make test-matrix`, which alone fetches their jars. 4.0.0 and no later patch of 4.0:
#: only 4.0.0 raises the epoch by two when the server aborts (docs/design/kafka.md §1.5, "Bug to recognise").
MATRIX_KAFKA = ("4.0.0", "4.1.2", "4.3.1")
#: Flink -> its patch, and the connector.
FLINKS = {"1.20": ("1.20.5", "3.4.0-1.20"), "2.0": ("2.0.0", "4.0.1-2.0"), "2.1": ("2.1.0", "5.0.0-2.1")}
#: Flink versions with `FlinkKafkaProducer`; beside 1.20 they made the tests' fixtures.
OLDER_FLINKS = {"1.14": ("1.14.6", "1.14.6"), "1.18": ("1.18.1", "3.0.2-1.18")}
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"


def _of_flink(patch: str, connector: str) -> tuple[str, ...]:
    scala = "_2.12" if patch.startswith("1.14.") else ""
    names = (
        f"clients{scala}:{patch}",
        f"connector-base:{patch}",
        f"connector-kafka{scala}:{connector}",
    )
    return (*(f"org.apache.flink:flink-{name}" for name in names), _LOGGING)


#: set -> (roots with their dependencies, jars without). kafka-tools goes without: its dependencies include
#: Connect and a web server, which neither the broker nor the tools we call use.
SETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **{
        f"kafka-{version}": (
            (f"org.apache.kafka:kafka_2.13:{version}", _LOGGING),
            (f"org.apache.kafka:kafka-tools:{version}",),
        )
        for version in EVERYDAY_KAFKA + MATRIX_KAFKA
    },
    "spark-connector": (
        (),
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.12.0",
        ),
    ),
    # Delta, and JDBC drivers, for tests of the audit.
    "tables": (
        (),
        (
            "io.delta:delta-spark_4.2_2.13:4.4.0",
            "io.delta:delta-storage:4.4.0",
            "org.postgresql:postgresql:42.7.14",
            "org.xerial:sqlite-jdbc:3.54.1.0",
        ),
    ),
    # Spark's own tests, with checkpoints that each of its versions must be able to read.
    "spark-tests": (
        (),
        (
            "org.apache.spark:spark-sql_2.12:3.5.8:tests",
            "org.apache.spark:spark-sql_2.13:4.0.2:tests",
            "org.apache.spark:spark-sql_2.13:4.1.1:tests",
            "org.apache.spark:spark-sql_2.13:4.2.0:tests",
        ),
    ),
    # Engines that py4j drives in a JVM: Flink with the matching Kafka connectors, Streams, Connect.
    **{f"flink-{flink}": (_of_flink(*versions), ()) for flink, versions in (FLINKS | OLDER_FLINKS).items()},
    **{
        artifact: ((f"org.apache.kafka:{artifact}:4.2.0", _LOGGING), ())
        for artifact in ("kafka-streams", "connect-mirror")
    },
    # Flink's own reader of checkpoints, for tests, beside the jars of its Flink.
    "flink-state-processor": (
        (),
        tuple(f"org.apache.flink:flink-state-processor-api:{flink}.0" for flink in FLINKS),
    ),
    # Debezium and the matching worker of Connect, for tests.
    "connect-debezium": (
        (
            "org.apache.kafka:connect-runtime:4.3.0",
            "io.debezium:debezium-connector-postgres:3.6.3.Final",
            _LOGGING,
        ),
        (),
    ),
    # Jars that Spark's own set lacks for a NameNode and a DataNode, in the same version.
    "hdfs": ((), ("org.apache.hadoop:hadoop-client-minicluster:3.5.0",)),
}
