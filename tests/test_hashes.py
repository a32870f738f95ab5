"""The pinned versions have hashes, and a distribution with another hash is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PINS = re.findall(r"^(\S+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def locked() -> dict[tuple[str, str], str]:
    """One hash of each pinned version."""
    text = (ROOT / "constraints.hashes.txt").read_text()
    found = re.findall(r"^(\S+)==(\S+) .*\n\s+--hash=sha256:(\w{64})", text, re.MULTILINE)
    return {(name, version): digest for name, version, digest in found}


def test_every_pinned_version_has_a_hash() -> None:
    normal = {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in PINS}
    assert set(locked()) == normal


def check(tmp_path: Path, name: str, version: str, digest: str | None) -> tuple[int, str]:
    """How the script judges an installed distribution."""
    info = {"url": "https://example/x", "archive_info": {"hashes": {"sha256": digest}}}
    item = {"metadata": {"name": name, "version": version}, "download_info": info}
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"install": [item]}))
    command = [sys.executable, str(ROOT / "scripts" / "check-hashes"), str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_distribution_is_known_by_its_hash(tmp_path: Path) -> None:
    (name, version), digest = next(iter(locked().items()))
    assert check(tmp_path, name.upper().replace("-", "_"), version, digest) == (0, "")


@pytest.mark.parametrize("what", ["bit", "version", "name", "none"])
def test_another_distribution_is_refused(tmp_path: Path, what: str) -> None:
    (name, version), digest = next(iter(locked().items()))
    other = {
        "bit": (name, version, ("1" if digest[0] == "0" else "0") + digest[1:]),
        "version": (name, version + ".1", digest),
        "name": (name + "x", version, digest),
        "none": (name, version, None),
    }
    code, said = check(tmp_path, *other[what])
    assert code == 1
    assert "is not in constraints.hashes.txt" in said


def test_a_torch_from_elsewhere_is_named(tmp_path: Path) -> None:
    version = dict(PINS)["torch"]
    code, said = check(tmp_path, "torch", f"{version}+cpu", "0" * 64)
    assert (code, "is not from PyPI" in said) == (0, True)
    assert check(tmp_path, "torch", version, "0" * 64)[0] == 1
