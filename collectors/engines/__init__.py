"""Read the REST APIs of engines that write to Kafka: Flink's JobManagers and Kafka Connect's workers."""
