"""The command lines of a SuperLink and of a SuperNode, secure unless told otherwise."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from camu.deploy.host.keys import check_secret
from camu.errors import InputError


@dataclass(frozen=True)
class ServerKeys:
    """What a SuperLink needs to be trusted."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class NodeKeys:
    """What a node needs to trust its SuperLink and to be trusted by it."""

    authority: Path
    key: Path


def superlink_command(
    host: str, port: int, keys: ServerKeys | None, database: Path | None = None
) -> list[str]:
    """The SuperLink; without keys it speaks plain text and takes every node."""
    command = [
        sys.executable,
        "-m",
        "camu.deploy.host.superlink",
        "--host",
        host,
        "--port",
        str(port),
    ]
    command += ["--disable-runtime-dependency-installation"]
    if database is not None:
        command += ["--database", str(database)]
    if keys is None:
        return [*command, "--insecure"]
    for path in (keys.authority, keys.certificate):
        _check_readable(path)
    check_secret(keys.key)
    return [
        *command,
        *("--ssl-ca-certfile", str(keys.authority)),
        *("--ssl-certfile", str(keys.certificate)),
        *("--ssl-keyfile", str(keys.key)),
        "--enable-supernode-auth",
    ]


def supernode_command(
    superlink: str, port: int, keys: NodeKeys | None, node: Mapping[str, str | int | float]
) -> list[str]:
    """A SuperNode; `port` is the loopback port on which it talks to its own executor."""
    command = [sys.executable, "-m", "camu.deploy.host.supernode", "--superlink", superlink]
    command += ["--port", str(port), "--node-config", node_config(node)]
    if keys is None:
        return [*command, "--insecure"]
    _check_readable(keys.authority)
    check_secret(keys.key)
    return [
        *command,
        *("--root-certificates", str(keys.authority)),
        *("--auth-supernode-private-key", str(keys.key)),
    ]


def node_config(node: Mapping[str, str | int | float]) -> str:
    """Flower's spelling of a node's configuration: key=value with texts in quotes."""
    words = []
    for key, value in node.items():
        if isinstance(value, str):
            if any(mark in value for mark in "\"'\\\n"):
                raise InputError(f"{key} = {value}: quotes and backslashes cannot be passed on")
            words.append(f'{key}="{value}"')
        else:
            words.append(f"{key}={value}")
    return " ".join(words)


def _check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); `camu deploy keys DIR` makes certificates"
        ) from None
