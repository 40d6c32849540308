"""The API: one module per noun."""
