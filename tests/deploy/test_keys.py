"""Keys: right modes, a chain that verifies, nothing overwritten."""

from __future__ import annotations

import ipaddress
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from camu.deploy.host.control import Control
from camu.deploy.host.keys import (
    KeyDirectory,
    add_node_keys,
    check_secret,
    make_keys,
    make_token,
)
from camu.deploy.host.node import node_command
from camu.deploy.host.superlink import superlink_command
from camu.errors import InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> KeyDirectory:
    folder = tmp_path_factory.mktemp("keys") / "new"
    return make_keys(folder, nodes=2, hosts=["superlink.example", "192.0.2.7"])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_secrets_are_for_their_owner_alone(made: KeyDirectory) -> None:
    assert mode(made.path) == 0o700
    for path in made.path.iterdir():
        assert mode(path) == (0o600 if path.suffix in (".key", ".token") else 0o644), path


def test_the_server_certificate_is_signed_by_the_authority_for_its_names(
    made: KeyDirectory,
) -> None:
    authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
    server = x509.load_pem_x509_certificate(made.server.read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "superlink.example"]
    assert ipaddress.ip_address("192.0.2.7") in names.get_values_for_type(x509.IPAddress)
    key = load_pem_private_key(made.server_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == server.public_key()


def test_node_keys_belong_together_and_differ(made: KeyDirectory) -> None:
    publics = []
    for number in range(2):
        private = load_ssh_private_key(made.node_key(number).read_bytes(), None)
        public = load_ssh_public_key(made.node_public_key(number).read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.public_key() == public
        publics.append(made.node_public_key(number).read_text())
    assert publics[0] != publics[1]


def test_keys_of_later_nodes_are_added(camu: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    made = make_keys(folder, nodes=1)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = camu("deploy", "keys", folder, "--add", 2)
    assert done.code == 0, done.err
    assert "node-2.pub: to be registered" in done.out
    added = {path.name for path in folder.iterdir()} - {path.name for path in before}
    assert added == {"node-1.key", "node-1.pub", "node-2.key", "node-2.pub"}
    assert all(path.read_bytes() == content for path, content in before.items())
    private = load_ssh_private_key(made.node_key(2).read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.public_key() == load_ssh_public_key(made.node_public_key(2).read_bytes())
    assert mode(made.node_key(2)) == 0o600
    (tmp_path / "empty").mkdir()
    for arguments, said in (
        ([tmp_path / "empty"], "has no ca.crt"),
        ([folder, "--host", "a.example"], "leave --host out"),
    ):
        done = camu("deploy", "keys", *arguments, "--add", 1)
        assert done.code == 2
        assert said in done.err
    done = camu("deploy", "keys", folder)
    assert done.code == 2
    assert "--add" in done.err


def test_a_table_registers_many_keys_or_none(
    camu: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_keys(tmp_path / "keys", 3)
    registered: list[tuple[bytes, str]] = []

    class Client:
        def ListNodes(self, request: Any) -> Any:
            here = [
                SimpleNamespace(node_id=n, public_key=key, name=name, unregistered_at="")
                for n, (key, name) in enumerate(registered)
            ]
            return SimpleNamespace(nodes_info=here)

        def RegisterNode(self, request: Any) -> Any:
            registered.append((request.public_key, request.name))
            return SimpleNamespace(node_id=len(registered) - 1)

        def close(self) -> None: ...

    monkeypatch.setattr(Control, "__init__", lambda self, *_, **__: setattr(self, "address", "x"))
    for name in ("_client", "_web"):
        monkeypatch.setattr(Control, name, Client(), raising=False)

    def register(*rows: str) -> Any:
        table = tmp_path / "keys" / "nodes.csv"
        table.write_text("\n".join(("key,devices", *rows)) + "\n")
        return camu("deploy", "register", "--table", table, "--ca", made.authority)

    for rows, words in {
        ("node-0.pub,pump", "node-9.pub,fan"): "node-9.pub: cannot be read",
        ("node-0.pub,pump", 'node-1.pub,"fan,pump"'): "line 3: device pump is in line 2, too",
        ("node-0.pub,pump", "node-0.pub,fan"): "line 3: the key node-0.pub is in line 2, too",
        ('node-0.pub,"pump,"',): "line 2, column devices: name each device once",
    }.items():
        outcome = register(*rows)
        assert (outcome.code, registered) == (2, [])
        assert words in outcome.err
    rows = ('node-0.pub,"pump, fan"', "node-1.pub,saw", "node-2.pub,")
    outcome = register(*rows)
    assert outcome.code == 0, outcome.err
    assert [name for _, name in registered] == ["devices=fan,pump", "devices=saw", "node-2"]
    assert "node-1.pub is registered as node 1" in outcome.out
    assert "node-1.pub is already registered as node 1" in register(*rows).out
    # A key that is bound to other devices: nothing of the table is registered.
    refused = register("node-0.pub,mill", *rows[1:])
    assert (refused.code, len(registered)) == (2, 3)
    neither = camu("deploy", "register", "--ca", made.authority)
    assert "or a table of them with --table" in neither.err


def test_keys_are_never_overwritten(made: KeyDirectory) -> None:
    before = made.authority.read_bytes()
    with pytest.raises(InputError, match="never overwritten"):
        make_keys(made.path, 1)
    assert made.authority.read_bytes() == before


def test_no_key_is_written_into_a_directory_of_another_user(
    made: KeyDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    if os.getuid() == 0:
        os.chown(theirs, 12345, 12345)
        (theirs / "ca.crt").write_text("x")
        with pytest.raises(InputError, match="belongs to another user"):
            add_node_keys(theirs, 1)
        (theirs / "ca.crt").unlink()
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    for make in (lambda: make_keys(theirs, 1), lambda: make_token(theirs / "control.token")):
        with pytest.raises(InputError, match="belongs to another user"):
            make()
    assert list(theirs.iterdir()) == []


def test_the_database_of_a_superlink_is_for_its_owner_alone(
    made: KeyDirectory, tmp_path: Path
) -> None:
    database = tmp_path / "superlink.db"
    superlink_command("127.0.0.1", 1, made, database)
    database.write_text("")
    database.chmod(0o644)
    superlink_command("127.0.0.1", 1, made, database)
    assert mode(database) == 0o600


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "node.key"
    key.write_text("secret")
    key.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        check_secret(key)
    with pytest.raises(InputError, match="cannot be read"):
        check_secret(tmp_path / "none.key")


def test_commands_are_secure_unless_told_otherwise(made: KeyDirectory) -> None:
    server = superlink_command("0.0.0.0", 8000, made)
    assert "--enable-supernode-auth" in server
    assert "--ssl-keyfile" in server
    assert "--insecure" not in server
    node = node_command("host:8000", made.authority, made.node_key(0), {"partition-id": 0})
    options = json.loads(node[-1])
    assert options["key"] == str(made.node_key(0))
    assert options["authority"] == str(made.authority)
    assert "--insecure" in superlink_command("127.0.0.1", 8000, None)
    assert json.loads(node_command("host:8000", None, None, {})[-1])["key"] is None


def test_the_command_tells_what_each_file_is_for(camu: Callable[..., Any], tmp_path: Path) -> None:
    outcome = camu("deploy", "keys", tmp_path / "k", "--nodes", 2, "--host", "a.example")
    assert outcome.code == 0, outcome.err
    assert "keep it off the network" in outcome.out
    assert mode(tmp_path / "k" / "node-1.key") == 0o600
    assert camu("deploy", "keys", tmp_path / "k").code == 2
    assert camu("deploy", "keys", tmp_path / "l", "--host", "not a..name").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("superlink",),
        ("node", "--superlink", "h:1", "--partition", "0/2"),
        ("node", "--superlink", "h:1", "--partition", "2/2", "--insecure"),
        ("node", "--superlink", "h:1", "--partition", "²/3", "--insecure"),
        ("node", "--superlink", "h:1", "--insecure"),
        ("register", "key.pub"),
        ("run", "--out", "somewhere"),
        ("local", "--granularity", "neither"),
    ],
)
def test_what_is_missing_is_named(camu: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    outcome = camu("deploy", *arguments)
    assert outcome.code == 2
    assert "--" in outcome.err
