"""Signatures of a node's keys for secure sums, with the key that is registered at the SuperLink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from camu.deploy.secure_sum import MaskError, Verify
from camu.errors import InputError
from camu.files import read_bytes
from camu.planning.secure import SIGNATURE_BYTES

_NO_KEY = "{}: is no public key of a node (`camu deploy keys` makes them)"
_FOREIGN = "a registered key is not one of a node"
NUMBER_BYTES = SIGNATURE_BYTES // 2  # of each of the two numbers of a signature on P-384


def signer(path: str) -> Callable[[bytes], bytes]:
    """What signs with the key of a node."""
    if not path:
        raise InputError(
            "training.secure_sum: this node has no key to sign with; start it with --key, and a "
            "trial without --insecure"
        )
    key = load_ssh_private_key(read_bytes(Path(path), "a private key of a node"), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path}: is no private key of a node")

    def sign(text: bytes) -> bytes:
        pair = decode_dss_signature(key.sign(text, ec.ECDSA(SHA384())))
        return b"".join(number.to_bytes(NUMBER_BYTES, "big") for number in pair)

    return sign


def verifier(registered: Mapping[str, str], peers: frozenset[bytes] | None) -> Verify:
    """What tells whether a member's node has signed a text.

    `registered` are the public keys by node, as the server names them; with `peers`, the keys that
    the node's owner knows, no other key is taken.
    """
    known = {name: _public(text) for name, text in registered.items()}
    forms = {name: _form(key) for name, key in known.items()}
    if len(set(forms.values())) < len(forms):
        raise MaskError("two members have the same key")
    for name, form in forms.items():
        if peers is not None and form not in peers:
            raise MaskError(f"the key of {name} is not among those that this node's owner knows")

    def verify(member: str, text: bytes, signature: bytes) -> bool:
        if member not in known or len(signature) != SIGNATURE_BYTES:
            return False
        first, second = signature[:NUMBER_BYTES], signature[NUMBER_BYTES:]
        pair = int.from_bytes(first, "big"), int.from_bytes(second, "big")
        try:
            known[member].verify(encode_dss_signature(*pair), text, ec.ECDSA(SHA384()))
        except InvalidSignature:
            return False
        return True

    return verify


def read_peers(folder: str) -> frozenset[bytes] | None:
    """The public keys in a directory, `*.pub` as `camu deploy keys` writes them; None without."""
    if not folder:
        return None
    files = sorted(Path(folder).glob("*.pub"))
    if not files:
        raise InputError(
            f"--peers {folder}: has no *.pub; copy the public keys of the other nodes there"
        )
    found = set()
    for file in files:
        try:
            key = load_ssh_public_key(read_bytes(file, "a public key of a node"))
        except ValueError:
            raise InputError(_NO_KEY.format(file)) from None
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InputError(_NO_KEY.format(file))
        found.add(_form(key))
    return frozenset(found)


def _public(text: str) -> ec.EllipticCurvePublicKey:
    try:
        key = load_pem_public_key(text.encode())
    except ValueError:
        raise MaskError(_FOREIGN) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp384r1":
        raise MaskError(_FOREIGN)
    return key


def _form(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
