"""A stack of `make up`: its configuration and its address."""
