"""Middleware and protocols in front of every page: limits, hosts, headers, origins."""
