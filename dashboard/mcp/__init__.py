"""The MCP server: the API's read operations as tools for agents, and plans that a person confirms on a page.

A tool is a request to the API in this process with the caller's token, so roles, limits and errors are the
API's.
"""
