"""A whole deployment on one machine: Kafka, Redis, Spark, the dashboard and a demo."""
