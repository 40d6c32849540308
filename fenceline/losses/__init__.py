"""Records in a log that no reader gets: the cause, proved by the log. Pure."""
