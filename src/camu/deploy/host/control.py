"""The SuperLink's control interface: register nodes, start a run, ask how it is doing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import (
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from camu.errors import CamuError, InputError


@dataclass(frozen=True)
class RunState:
    """How a run stands: `pending`, `starting`, `running` or `finished`, and then how."""

    status: str
    sub_status: str
    details: str


class Control:
    """A connection to one SuperLink; a context manager."""

    def __init__(self, address: str, authority: Path | None) -> None:
        """Without an authority's certificate the connection is plain text."""
        self.address = address
        try:
            certificate = authority.read_bytes() if authority is not None else None
        except OSError as error:
            raise InputError(f"{authority}: cannot be read ({error.strerror})") from None
        self._client = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=authority is None,
            root_certificates=certificate,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def register(self, public_key: Path, name: str) -> int:
        """Let the owner of a key take part; returns Flower's id of the node."""
        try:
            key = load_ssh_public_key(public_key.read_bytes())
            pem = public_key_to_bytes(key)  # type: ignore[arg-type]
        except OSError as error:
            raise InputError(f"{public_key}: cannot be read ({error.strerror})") from None
        except (ValueError, AttributeError):
            raise InputError(
                f"{public_key}: is no public key of a node; `camu deploy keys DIR` makes them"
            ) from None
        with self._explained(f"{public_key}: cannot be registered"):
            return int(
                self._client.RegisterNode(RegisterNodeRequest(public_key=pem, name=name)).node_id
            )

    def start(self, bundle: bytes) -> int:
        """Start a run; returns Flower's id of it."""
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        with self._explained("the run cannot be started"):
            return int(self._client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)

    def state(self, run: int) -> RunState:
        """How a run stands."""
        with self._explained("the run's state cannot be read"):
            found = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
            return RunState(found.status, found.sub_status, found.details)

    def stop(self, run: int) -> None:
        """End a run."""
        with self._explained("the run cannot be stopped"):
            self._client.StopRun(StopRunRequest(run_id=run))

    def _explained(self, what: str) -> _Explained:
        return _Explained(f"{self.address}: {what}")


@dataclass(frozen=True)
class _Explained:
    """Turns errors of the connection into one sentence."""

    what: str

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        if isinstance(value, httpx.HTTPStatusError):
            raise CamuError(f"{self.what} ({value.response.status_code}: {_detail(value)})")
        if isinstance(value, httpx.HTTPError):
            raise CamuError(f"{self.what} ({value or type(value).__name__})")


def _detail(error: httpx.HTTPStatusError) -> str:
    text = error.response.text.strip()
    return text[:300] or error.response.reason_phrase
