"""PySpark jobs, and the exactly-once Kafka sink that they and others use. Runs on drivers and executors."""
