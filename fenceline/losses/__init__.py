"""Records that are in a log and that nobody gets: what took them away, proved by the log. Pure."""
