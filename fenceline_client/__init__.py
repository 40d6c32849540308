"""Fenceline's command line and the client that it shares with other programs. It needs no Django.

`FencelineClient` (`fenceline_client/client.py`) asks the API of a dashboard; `fenceline` prints its answers.
"""
