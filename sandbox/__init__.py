"""A whole deployment on one machine: Kafka, Redis, Spark, the dashboard and something to look at."""
