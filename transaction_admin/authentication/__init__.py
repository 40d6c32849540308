"""Authentication that needs files, networks and other packages: key stores, tokens, Kerberos.

`fenceline.authentication` has the table of mechanisms; these modules make each client library's settings.
"""
