"""Certificates, node keys and the token of a SuperLink's owner, with file modes that keep secrets.

Private keys are readable by their owner alone and never overwritten. Nodes prove who they are with
an elliptic-curve key whose public half is registered at the SuperLink.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from camu.errors import CamuError, InputError
from camu.files import read_bytes, write_bytes

_HOST_NAME = re.compile(
    r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_-]+)*", re.IGNORECASE
)

CURVE = ec.SECP384R1()  # what Flower's node authentication expects
AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
SOON_DAYS = 60  # a certificate that ends within this time should be renewed
TOKEN_FILE = "control.token"  # a name, no secret  # nosec B105
TOKEN_BYTES = 32
AUTHORITY = "camu deployment authority"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
CERTIFICATE = "a certificate (`camu deploy keys DIR` makes them)"
_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


class KeyDirectory:
    """The files that `camu deploy keys` makes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority = path / "ca.crt"  # its certificate: every machine gets a copy
        self.authority_key = path / "ca.key"  # signs server certificates; keep it off the network
        self.server, self.server_key = path / "server.crt", path / "server.key"  # of the SuperLink
        self.token = path / TOKEN_FILE  # for the control interface: for the SuperLink's owner alone

    def node_key(self, number: int) -> Path:
        """Private key of a node: it goes to that node alone."""
        return self.path / f"node-{number}.key"

    def node_public_key(self, number: int) -> Path:
        """Public key of a node: the SuperLink registers it."""
        return self.path / f"node-{number}.pub"


def make_keys(path: Path, nodes: int, hosts: Sequence[str] = ()) -> KeyDirectory:
    """Make an authority, a server certificate for these names and addresses, and node keys."""
    if nodes < 1:
        raise InputError(f"--nodes {nodes}: at least one node needs a key")
    names = [*LOOPBACK, *(host for host in hosts if host not in LOOPBACK)]
    subjects = x509.SubjectAlternativeName(map(_subject_name, names))
    keys = KeyDirectory(path)
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_owner(path)
        if any(path.iterdir()):
            raise InputError(
                f"{path}: is not empty; keys are never overwritten: give a new directory, or add "
                "node keys to those that are there with --add"
            )
        path.chmod(0o700)
        authority_key = ec.generate_private_key(CURVE)
        server_key = ec.generate_private_key(CURVE)
        issuer = _common_name(AUTHORITY)
        server = _sign_server(server_key.public_key(), subjects, issuer, authority_key)
        _write_new(keys.authority_key, _pem(authority_key))
        _write_new(keys.authority, _sign_authority(authority_key), mode=0o644)
        _write_new(keys.server_key, _pem(server_key))
        _write_new(keys.server, server, mode=0o644)
        _write_new(keys.token, _new_token())
        for number in range(nodes):
            _write_node_key(keys, number)
    except OSError as error:
        raise CamuError(f"{path}: keys cannot be written ({error.strerror or error})") from None
    return keys


def add_node_keys(path: Path, count: int) -> list[int]:
    """Make keys for more nodes in a directory of `make_keys`; returns their numbers."""
    keys = KeyDirectory(path)
    if not keys.authority.is_file():
        raise InputError(f"{path}: has no ca.crt; give the directory that camu deploy keys made")
    _check_owner(path)
    try:
        names = [file.stem.removeprefix("node-") for file in path.glob("node-*")]
        first = 1 + max((int(name) for name in names if name.isdecimal()), default=-1)
        numbers = list(range(first, first + count))
        for number in numbers:
            _write_node_key(keys, number)
    except OSError as error:
        raise CamuError(f"{path}: keys cannot be written ({error.strerror or error})") from None
    return numbers


def _check_owner(path: Path) -> None:
    """Refuse a directory of another user, who could put his own files in the place of new ones."""
    if path.stat().st_uid not in (os.getuid(), 0):
        raise InputError(
            f"{path}: belongs to another user, who could replace the keys; give a directory of "
            "your own"
        )


def make_private(path: Path) -> None:
    """Let only its owner read a file that is there."""
    try:
        if path.exists():
            path.chmod(0o600)
    except OSError as error:
        raise CamuError(
            f"{path}: cannot be made readable for its owner alone ({error.strerror}); run this "
            "command as its owner"
        ) from None


def _write_node_key(keys: KeyDirectory, number: int) -> None:
    node = ec.generate_private_key(CURVE)
    _write_new(keys.node_key(number), _pem(node, PrivateFormat.OpenSSH))
    public = node.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _write_new(keys.node_public_key(number), public + b"\n", mode=0o644)


def _pem(key: ec.EllipticCurvePrivateKey, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def _write_new(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a new file, by default one that its owner alone can read."""
    # Created with its final mode, so that there is no moment in which others could read it.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    path.chmod(mode)  # whatever the umask is


def token_path(authority: Path | None) -> Path:
    """The file with a SuperLink's token: next to the authority's certificate."""
    folder = Path.home() / ".camu" if authority is None else authority.absolute().parent
    return folder / TOKEN_FILE


def make_token(path: Path) -> None:
    """Make the file with a token, readable by its owner alone, unless it is there."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(path.parent)
        _write_new(path, _new_token())
    except FileExistsError:
        check_secret(path)
    except OSError as error:
        raise CamuError(
            f"{path}: the token for the control interface cannot be written "
            f"({error.strerror}); let the user of the SuperLink own the directory"
        ) from None


def _new_token() -> bytes:
    return secrets.token_hex(TOKEN_BYTES).encode() + b"\n"


def read_token(path: Path) -> str:
    """The token in a file; refused if others can read the file, or its owner is someone else."""
    try:
        text = path.read_text("ascii").strip()
        owner = path.stat().st_uid
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: the SuperLink's token cannot be read ({error}); run this command as the user "
            "of the SuperLink, which makes the file at its start"
        ) from None
    check_secret(path)
    if owner not in (os.getuid(), 0):
        raise InputError(f"{path}: belongs to another user; run this command as that user")
    if len(text) != 2 * TOKEN_BYTES:
        raise InputError(f"{path}: holds no token; delete it and start the SuperLink again")
    return text


def check_files(certificates: Sequence[Path], key: Path) -> None:
    """Refuse files of a SuperLink or node that cannot be read, and a key that others can read."""
    for path in certificates:
        read_bytes(path, CERTIFICATE)
    check_secret(key)


def check_secret(path: Path) -> None:
    """Refuse a private key that is missing, or that others than its owner can read."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); `camu deploy keys DIR` makes keys"
        ) from None
    if mode & 0o077:
        raise InputError(
            f"{path}: others than its owner can read it; set its mode with chmod 600 {path}"
        )


def _subject_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if len(host) <= 253 and _HOST_NAME.fullmatch(host):
            return x509.DNSName(host)
        raise InputError(
            f"--host {ascii(host)[:200]}: is neither an IP address nor a host name"
        ) from None


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{use: use in allowed for use in _USES})


def _sign_authority(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A certificate with which an authority vouches for itself."""
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    usage = _usage("key_cert_sign", "crl_sign")
    name = _common_name(AUTHORITY)
    return _sign(name, AUTHORITY_DAYS, key.public_key(), name, key, constraints, usage)


def _sign_server(
    key: ec.EllipticCurvePublicKey,
    names: x509.SubjectAlternativeName,
    authority: x509.Name,
    authority_key: ec.EllipticCurvePrivateKey,
) -> bytes:
    """A certificate for a server's public key, under these names and addresses."""
    return _sign(
        *(_common_name("camu deployment server"), SERVER_DAYS, key, authority, authority_key),
        x509.BasicConstraints(ca=False, path_length=None),
        _usage("digital_signature"),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        names,
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
    )


def _sign(
    subject: x509.Name,
    days: int,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    *extensions: x509.ExtensionType,
) -> bytes:
    """A signed certificate in PEM; constraints and usage are critical, as RFC 5280 wants it."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A little back, for machines whose clocks differ.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )
    for extension in (*extensions, x509.SubjectKeyIdentifier.from_public_key(key)):
        critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(extension, critical)
    return builder.sign(issuer_key, hashes.SHA384()).public_bytes(Encoding.PEM)


@dataclass(frozen=True)
class Expiry:
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
        return x509.load_pem_x509_certificate(read_bytes(path, CERTIFICATE))
    except ValueError:
        raise InputError(f"{path}: is not a certificate; give {CERTIFICATE}") from None


def expiry(path: Path) -> Expiry:
    """When the certificate in a file ends."""
    return Expiry(path, read_certificate(path).not_valid_after_utc)


def expiries(folder: Path) -> list[Expiry]:
    """When the certificates in a key directory end: the authority's and the server's."""
    keys = KeyDirectory(folder)
    return [expiry(path) for path in (keys.authority, keys.server) if path.exists()]


def renew_server(folder: Path) -> Expiry:
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
    write_bytes(keys.server, _sign_server(public, names, authority.subject, key))
    os.chmod(keys.server, 0o644)
    return expiry(keys.server)
