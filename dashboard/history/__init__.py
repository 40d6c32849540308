"""What happened over months: tallies and transitions from the database, and the history job's reports."""
