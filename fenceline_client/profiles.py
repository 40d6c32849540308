"""Which Fenceline is asked, with which token: the environment, else a file that only its user may read.

The file holds one token for each URL, and the URL of the last `login`.
"""

import ipaddress
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fenceline_client.client import ClientError

#: Bits of a file's mode that let others read or change it.
_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """The URL of a Fenceline, and the token for it."""

    url: str
    token: str


def find_access(url: str, *, insecure_http: bool) -> ServerAccess:
    """Return what is to be asked: `url`, else the one of the last login. FENCELINE_TOKEN comes first."""
    stored = _read_file()
    asked = url or str(stored.get("default", ""))
    if not asked:
        raise ClientError("No server is known. Run: fenceline login URL, or set FENCELINE_URL.")
    profile = stored.get("servers", {}).get(asked.rstrip("/"), {})
    checked = checked_url(asked, insecure_http=insecure_http or bool(profile.get("insecure_http")))
    token = os.environ.get("FENCELINE_TOKEN", "").strip() or str(profile.get("token", ""))
    if not token:
        raise ClientError(f"No token for {checked} is stored. Run: fenceline login {checked}")
    return ServerAccess(checked, checked_token(token))


def checked_url(text: str, *, insecure_http: bool) -> str:
    """Return a base URL without a slash at its end; a token goes over plain HTTP to this machine only."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise ClientError(
            f"{text} is no URL ({error}). Give one such as https://fenceline.example.org"
        ) from None
    if parts.scheme not in ("http", "https") or not host:
        raise ClientError(f"{text} is no URL of a server. Give one such as https://fenceline.example.org")
    if parts.username is not None or parts.query or parts.fragment:
        raise ClientError("The URL must have no user, password, query or fragment. Leave them out.")
    if parts.scheme == "http" and not insecure_http and not _is_loopback(host):
        raise ClientError(
            f"{text} would send the token unencrypted. Use https://, or allow it with --insecure-http."
        )
    return text.rstrip("/")


def checked_token(text: str) -> str:
    """Return a token that a header can hold."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ClientError("The token is empty or has characters that no token has. Copy it again.")
    return token


def save_profile(access: ServerAccess, *, insecure_http: bool) -> Path:
    """Store a token as the one of its URL, make that the default, and return the file."""
    stored, path = _read_file(), profiles_path()
    profile = {"token": access.token, **({"insecure_http": True} if insecure_http else {})}
    servers = {**stored.get("servers", {}), access.url: profile}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Created with mode 600, and renamed when it is whole.
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump({"default": access.url, "servers": servers}, file, indent=2)
        Path(name).replace(path)
    except OSError as error:
        raise ClientError(f"{path} cannot be written: {error.strerror}. Set XDG_CONFIG_HOME.") from error
    return path


def profiles_path() -> Path:
    """Return the file of the stored tokens."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "fenceline" / "servers.json"


def _read_file() -> Mapping[str, Any]:
    """Return what is stored, nothing without a file."""
    path = profiles_path()
    try:
        if os.name == "posix" and path.stat().st_mode & _OTHERS:
            raise ClientError(f"{path} holds tokens, and others may read it. Run: chmod 600 '{path}'")
        stored: Any = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror}. Correct its rights.") from error
    except (ValueError, RecursionError):
        raise _broken(path) from None
    if not isinstance(stored, dict) or not isinstance(servers := stored.get("servers"), dict):
        raise _broken(path)
    if not all(isinstance(profile, dict) for profile in servers.values()):
        raise _broken(path)
    return stored


def _broken(path: Path) -> ClientError:
    return ClientError(f"{path} holds no stored tokens that can be read. Remove it and log in again.")


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
