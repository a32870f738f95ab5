"""Control of a SuperLink: register nodes, start a run, ask for its state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from camu.deploy.flower_compat import ControlClient
from camu.errors import CamuError, InputError


@dataclass(frozen=True)
class RunState:
    """The state of a run: `pending`, `starting`, `running` or `finished`, and then how."""

    status: str
    sub_status: str
    details: str


@dataclass(frozen=True)
class Registration:
    """A registered node: Flower's id of it, and whether it was registered just now."""

    node: int
    new: bool


class Control:
    """A connection to one SuperLink; a context manager."""

    def __init__(self, address: str, authority: Path | None) -> None:
        """Without an authority's certificate the connection is plain text."""
        self.address = address
        try:
            certificate = authority.read_bytes() if authority is not None else None
        except OSError as error:
            raise InputError(f"{authority}: cannot be read ({error.strerror})") from None
        self._client = ControlClient(address, certificate)

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def register(self, public_key: Path, name: str) -> Registration:
        """Let the owner of a key take part; a key that is already registered stays as it is."""
        key = _read_public_key(public_key)
        with self._explained(f"{public_key}: cannot be registered"):
            known = self._client.registered_node(key)
            if known is not None:
                return Registration(known, new=False)
            return Registration(self._client.register_node(key, name), new=True)

    def start(self, bundle: bytes) -> int:
        """Start a run; returns Flower's id of it."""
        with self._explained("the run cannot be started"):
            return self._client.start_run(bundle)

    def state(self, run: int) -> RunState:
        """The state of a run."""
        with self._explained("the run's state cannot be read"):
            return RunState(*self._client.run_status(run))

    def _explained(self, what: str) -> AbstractContextManager[None]:
        return _explained(f"{self.address}: {what}")


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn errors of the connection into one sentence."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        detail = error.response.text.strip()[:300] or error.response.reason_phrase
        raise CamuError(f"{what} ({error.response.status_code}: {detail})") from None
    except httpx.HTTPError as error:
        raise CamuError(f"{what} ({str(error) or type(error).__name__})") from None


def _read_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    try:
        key = load_ssh_public_key(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InputError(
            f"{path}: is not a public key of a node; `camu deploy keys DIR` makes them"
        )
    return key
