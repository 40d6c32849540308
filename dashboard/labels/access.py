"""The words of users, tokens and roles."""

from collections.abc import Mapping

from dashboard.labels.status import StatusLabel
from dashboard.models import Token

#: States of users (`dashboard.system.users.state_of`) and of tokens (`Token.state`).
ACCESS_STATES: Mapping[str, StatusLabel] = {
    "active": StatusLabel("active", "ok", "it may be used"),
    "invited": StatusLabel("invited", "info", "no password is set yet"),
    "external": StatusLabel("external", "ok", "signs in at an identity provider"),
    "disabled": StatusLabel("disabled", "unknown", "this user cannot sign in"),
    "expired": StatusLabel("expired", "unknown", "it is refused"),
    "revoked": StatusLabel("revoked", "unknown", "it is refused"),
}
#: The rights of each role.
ROLE_MEANS: Mapping[str, str] = {
    Token.Role.VIEWER: "sees every page, changes nothing",
    Token.Role.OPERATOR: "also plans and executes actions, silences alerts, acknowledges incidents",
    Token.Role.ADMIN: "also overrules refusals, manages channels, users and tokens, sees the audit log",
    Token.Role.INGEST: "only posts the progress of a Spark listener",
}
