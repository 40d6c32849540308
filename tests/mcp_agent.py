"""An agent that asks a stack over MCP with a viewer's token, and counts its calls."""

import json
from typing import Any

import httpx2
from asgiref.sync import async_to_sync
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

from tests.deployment import Stack


class Agent:
    """A client of `/mcp`; `calls` is how often it has asked."""

    def __init__(self, stack: Stack) -> None:
        self.token = stack.manage("create_token", f"agent-{id(self)}")
        self._url = f"{stack.url}/mcp"
        self.calls = 0

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Return what a tool answers."""
        self.calls += 1
        return async_to_sync(self._call)(tool, arguments)

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(self._url, http_client=http)) as client,
        ):
            result = await client.call_tool(tool, arguments)
        (content,) = result.content
        assert isinstance(content, TextContent)
        assert not result.is_error, content.text
        return json.loads(content.text)

    def explain(self, cluster: str, name: str) -> Any:
        """Return the explanation of the open incident that a name is in; None for none. It asks twice."""
        self.calls = 0
        incidents = self.call("list_incidents", cluster=cluster)["items"]
        found = next((each for each in incidents if name in each["subject"] + each["summary"]), None)
        return found and self.call("explain_incident", number=found["number"])
