"""Query strings of lists and of time ranges, filters and sortable columns."""
