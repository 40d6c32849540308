"""Who may do what on a broker that asks."""

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sandbox.kafka import Broker


def set_acl(
    broker: Broker,
    user: str,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> None:
    """Let a user do an operation, or deny it; returns when the controller has it."""
    binding = AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_acls([binding])[binding].result(30)
