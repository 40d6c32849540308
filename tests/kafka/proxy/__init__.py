"""A proxy of the Kafka protocol between a client and a real broker, which takes things away."""
