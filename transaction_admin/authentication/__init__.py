"""Signing in by what takes files, networks and other packages: stores of keys, tokens, Kerberos.

The table of mechanisms is `fenceline.authentication`; here are the settings that each client library gets.
"""
