"""Events: in a range of time, on one axis, repeated ones, and in the reports of the history job."""
