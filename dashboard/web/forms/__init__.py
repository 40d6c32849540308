"""Query strings of lists, read without ever failing, and the columns they sort by."""
