"""How a client signs in to a cluster: one table of mechanisms, and Java's names in librdkafka's words."""
