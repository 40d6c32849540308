"""The first sentence of pages: of the first page, the list of queries, and every detail page."""
