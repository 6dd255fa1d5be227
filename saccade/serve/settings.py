"""Settings: what is served, where, and to whom."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.errors import ResourceError, UsageError

BACKLOG = 2048
SHORTEST_KEY = 16


@dataclass(frozen=True)
class Settings:
    """Settings of a server."""

    refs: Sequence[str]
    names: Sequence[str] = ()
    root: Path = Path("runs")
    host: str = "127.0.0.1"
    port: int = 8000
    rows: int | None = None
    """texts that each language model generates at once; None: 16, or as many as fit into memory"""
    queue: int = 64
    device: str = "auto"
    dtype: str = "auto"
    keys: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    task: str = ""


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a host name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host must be an address of this machine, but is '{host}' ({error})") from error
    listening = socket.socket(family, kind)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        step = "choose another with --port or --host"
        raise ResourceError(f"{host} port {port} cannot be used: {error.strerror}; {step}") from error
    return listening


def read_keys(file: Path | None, variable: str) -> tuple[str, ...]:
    """Return the API keys of a file, one per line, or that of the environment variable SACCADE_API_KEY."""
    if file is None:
        lines, source = [variable], "SACCADE_API_KEY"
    else:
        source = str(file)
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--api-key-file must be a file of text, but {file} cannot be read ({error})") from error
    keys = tuple(filter(None, map(str.strip, lines)))
    if file is not None and not keys:
        raise UsageError(f"{source} must have a key, but is empty; write one with `openssl rand -hex 24 > {source}`")
    for key in keys:
        if len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
            rule = f"a key must have at least {SHORTEST_KEY} printable ASCII characters without spaces"
            raise UsageError(f"{rule}, but one of {source} has {len(key)}; make one with `openssl rand -hex 24`")
    return keys


def check_origins(origins: Sequence[str]) -> tuple[str, ...]:
    """Return the origins whose pages may send requests."""
    for origin in origins:
        scheme, _, host = origin.partition("://")
        if scheme not in ("http", "https") or not host or any(letter in host for letter in "/?#@* "):
            raise UsageError(f"--allow-origin must be like https://example.org, but is '{origin}'")
    return tuple(origins)
