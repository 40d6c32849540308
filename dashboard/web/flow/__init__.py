"""The picture of the flow of data: layout, context of its template, sentences."""
