"""What alerts are, and who is notified of what: decided without a database, a clock or a socket."""
