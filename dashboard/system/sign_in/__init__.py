"""Signing in: rate limits, audit records, and users of identity providers."""
