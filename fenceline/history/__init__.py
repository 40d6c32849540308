"""What happened: in a range of time, on one axis, repeatedly, and in the reports of the history job."""
