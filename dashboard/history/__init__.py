"""History: events of every source, transitions and tallies, and the reports of the history job."""
