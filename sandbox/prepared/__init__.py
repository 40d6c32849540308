"""What is prepared once for a Kafka or a Spark and used at each start: class archives, a formatted folder."""
