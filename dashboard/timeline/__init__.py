"""What happened in a range of time, from every source."""
