"""Authentication of clients: one table of mechanisms, and the translation of Java's names to librdkafka's."""
