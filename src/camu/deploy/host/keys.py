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
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from camu.errors import CamuError, InputError

_HOST_NAME = re.compile(
    r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_-]+)*", re.IGNORECASE
)

CURVE = ec.SECP384R1()  # what Flower's node authentication expects
AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
TOKEN_FILE = "control.token"  # a name, no secret  # nosec B105
TOKEN_BYTES = 32
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class KeyDirectory:
    """The files that `camu deploy keys` makes."""

    path: Path

    @property
    def authority(self) -> Path:
        """Certificate of the authority: every machine gets a copy."""
        return self.path / "ca.crt"

    @property
    def authority_key(self) -> Path:
        """Key of the authority: signs server certificates; keep it off the network."""
        return self.path / "ca.key"

    @property
    def server(self) -> Path:
        """Certificate of the SuperLink."""
        return self.path / "server.crt"

    @property
    def server_key(self) -> Path:
        """Key of the SuperLink."""
        return self.path / "server.key"

    @property
    def token(self) -> Path:
        """Token for the control interface of the SuperLink: for its owner alone."""
        return self.path / TOKEN_FILE

    def node_key(self, number: int) -> Path:
        """Private key of a node: it goes to that node alone."""
        return self.path / f"node-{number}.key"

    def node_public_key(self, number: int) -> Path:
        """Public key of a node: the SuperLink registers it."""
        return self.path / f"node-{number}.pub"


@dataclass(frozen=True)
class ServerKeys:
    """The files with which nodes can trust a SuperLink."""

    authority: Path
    certificate: Path
    key: Path

    def check(self) -> None:
        """Refuse files that cannot be read, and a key that others can read."""
        for path in (self.authority, self.certificate):
            _check_readable(path)
        check_secret(self.key)


@dataclass(frozen=True)
class NodeKeys:
    """The files with which a node trusts its SuperLink and proves who it is."""

    authority: Path
    key: Path

    def check(self) -> None:
        """Refuse files that cannot be read, and a key that others can read."""
        _check_readable(self.authority)
        check_secret(self.key)


def make_keys(path: Path, nodes: int, hosts: Sequence[str] = ()) -> KeyDirectory:
    """Make an authority, a server certificate for these names and addresses, and node keys."""
    if nodes < 1:
        raise InputError(f"--nodes {nodes}: at least one node needs a key")
    names = _subject_names([*LOOPBACK, *(host for host in hosts if host not in LOOPBACK)])
    keys = KeyDirectory(path)
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(path.iterdir()):
            raise InputError(
                f"{path}: is not empty; keys are never overwritten: give a new directory, or add "
                "node keys to those that are there with --add"
            )
        path.chmod(0o700)
        authority_key = ec.generate_private_key(CURVE)
        authority = _authority(authority_key)
        server_key = ec.generate_private_key(CURVE)
        server = sign_server(server_key.public_key(), names, authority, authority_key)
        write_secret(keys.authority_key, _pem(authority_key))
        _write_public(keys.authority, authority.public_bytes(Encoding.PEM))
        write_secret(keys.server_key, _pem(server_key))
        _write_public(keys.server, server.public_bytes(Encoding.PEM))
        write_secret(keys.token, _new_token())
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
    try:
        names = [file.stem.removeprefix("node-") for file in path.glob("node-*")]
        first = 1 + max((int(name) for name in names if name.isdecimal()), default=-1)
        numbers = list(range(first, first + count))
        for number in numbers:
            _write_node_key(keys, number)
    except OSError as error:
        raise CamuError(f"{path}: keys cannot be written ({error.strerror or error})") from None
    return numbers


def _write_node_key(keys: KeyDirectory, number: int) -> None:
    node = ec.generate_private_key(CURVE)
    write_secret(keys.node_key(number), _pem(node, PrivateFormat.OpenSSH))
    public = node.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _write_public(keys.node_public_key(number), public + b"\n")


def token_path(authority: Path | None) -> Path:
    """The file with a SuperLink's token: next to the authority's certificate."""
    folder = Path.home() / ".camu" if authority is None else authority.absolute().parent
    return folder / TOKEN_FILE


def make_token(path: Path) -> None:
    """Make the file with a token, readable by its owner alone, unless it is there."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_secret(path, _new_token())
    except FileExistsError:
        check_secret(path)
    except OSError as error:
        raise CamuError(
            f"{path}: the token for the control interface cannot be written "
            f"({error.strerror}); let the user of the SuperLink own the directory"
        ) from None


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


def _new_token() -> bytes:
    return secrets.token_hex(TOKEN_BYTES).encode() + b"\n"


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


def _check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); `camu deploy keys DIR` makes certificates"
        ) from None


def _subject_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
            continue
        except ValueError:
            pass
        if len(host) > 253 or not _HOST_NAME.fullmatch(host):
            raise InputError(
                f"--host {ascii(host)[:200]}: is neither an IP address nor a host name"
            )
        names.append(x509.DNSName(host))
    return names


def _builder(name: str, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .serial_number(x509.random_serial_number())
        # A little back, for machines whose clocks differ.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = "camu deployment authority"
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        _builder(name, AUTHORITY_DAYS)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA384())
    )


def sign_server(
    key: ec.EllipticCurvePublicKey,
    names: Sequence[x509.GeneralName],
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """A certificate for a server's public key, under these names and addresses."""
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key)
    return (
        _builder("camu deployment server", SERVER_DAYS)
        .issuer_name(authority.subject)
        .public_key(key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(key_cert_sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA384())
    )


def _usage(key_cert_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def write_secret(path: Path, content: bytes) -> None:
    """Write a new file that its owner alone can read."""
    # Created with its final mode, so that there is no moment in which others could read it.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)


def _write_public(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    path.chmod(0o644)
