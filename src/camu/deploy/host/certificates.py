"""When certificates end, and their renewal."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from camu.deploy.host.keys import KeyDirectory, check_secret, sign_server
from camu.errors import InputError
from camu.files import write_bytes

SOON_DAYS = 60


@dataclass(frozen=True)
class End:
    """When a certificate ends."""

    path: Path
    day: datetime.datetime

    @property
    def days(self) -> int:
        """Whole days until then; negative if it has ended."""
        return (self.day - datetime.datetime.now(datetime.UTC)).days

    @property
    def soon(self) -> bool:
        """Whether it is time to renew it."""
        return self.days < SOON_DAYS

    def __str__(self) -> str:
        date = f"{self.day:%Y-%m-%d}"
        if self.days < 0:
            return f"{self.path} has ended on {date}"
        return f"{self.path} ends on {date}, in {self.days} days"


def read_certificate(path: Path) -> x509.Certificate:
    """A certificate in PEM."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(
            f"{path}: is not a certificate; `camu deploy keys DIR` makes them"
        ) from None


def end_of(path: Path) -> End:
    """When the certificate in a file ends."""
    return End(path, read_certificate(path).not_valid_after_utc)


def ends_in(folder: Path) -> list[End]:
    """When the certificates in a key directory end: the authority's and the server's."""
    keys = KeyDirectory(folder)
    return [end_of(path) for path in (keys.authority, keys.server) if path.exists()]


def renew_server(folder: Path) -> End:
    """Sign the server's certificate again, for the same key and names; it replaces the old one.

    Needs ca.key, ca.crt and server.crt. Nodes trust the authority, so nothing changes for them.
    """
    keys = KeyDirectory(folder)
    authority, old = read_certificate(keys.authority), read_certificate(keys.server)
    check_secret(keys.authority_key)
    try:
        key = load_pem_private_key(keys.authority_key.read_bytes(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        key.public_key() != authority.public_key()
    ):
        raise InputError(f"{keys.authority_key}: is not the key of {keys.authority}")
    try:
        old.verify_directly_issued_by(authority)
    except Exception:
        raise InputError(f"{keys.server}: was not signed by {keys.authority}") from None
    public = old.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)  # it was signed by camu's authority
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    new = sign_server(public, list(names), authority, key)
    write_bytes(keys.server, new.public_bytes(Encoding.PEM))
    os.chmod(keys.server, 0o644)
    return end_of(keys.server)
