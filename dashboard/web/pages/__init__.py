"""One module per noun: its list, its detail page, what is posted to it."""
