"""Signing in: how often one may try, what is recorded of it, and users whom an identity provider knows."""
