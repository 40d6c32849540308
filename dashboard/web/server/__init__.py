"""Middleware and protocols in front of all pages: limits, hosts, headers and origins."""
