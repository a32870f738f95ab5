"""The contest for people: a table per kind of world, and how often `camu-balanced` is ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from camu.experiments.claims import BUDGETS, duel
from camu.experiments.design import CHAMPION, NOISY, Cell, Match
from camu.experiments.verdicts import CONTRADICTED, REPRODUCED, Verdict

# A comparison has no printed claim: its verdict says who is ahead.
WORDS = {REPRODUCED: "ahead", CONTRADICTED: "behind"}
Duels = Mapping[tuple[str, str], Verdict]  # by data set and claim


def contest_tables(matches: Sequence[Match], verdicts: Sequence[Verdict]) -> str:
    """Markdown: a summary over all matches, each rival's count, and a table per match."""
    duels = {(row.dataset, row.claim): row for row in verdicts}
    everyone = [(match, rival) for match in matches for rival in match.rivals]
    parts = [
        f"`{CHAMPION}` against each rival: difference of accuracy in points, paired by seed, mean "
        "± half of the 95 % interval. Ahead or behind: the interval excludes 0; in brackets the "
        "verdict after Holm's correction over all comparisons, where it differs.",
        f"All comparisons: {_summary([rival for _, rival in everyone], duels)}",
        _counts(matches, duels),
    ]
    for match in matches:
        parts += [f"### {match.title}", _summary(match.rivals, duels), _table(match, duels)]
    return "\n\n".join(parts) + "\n"


def _of(rival: Cell, duels: Duels) -> list[Verdict]:
    """The comparisons with a rival: at equal joules, and at equal seconds."""
    return [duels[rival.dataset, duel(key, rival)] for key in BUDGETS]


def _summary(rivals: Sequence[Cell], duels: Duels) -> str:
    """How often it is ahead and behind."""
    return _count([row for rival in rivals for row in _of(rival, duels)]) + "."


def _count(rows: Sequence[Verdict]) -> str:
    ahead, behind = (
        sum(row.verdict == word for row in rows) for word in (REPRODUCED, CONTRADICTED)
    )
    after = sum(row.holm == REPRODUCED for row in rows)
    text = f"ahead with the interval excluding 0 in {ahead} of {len(rows)} comparisons"
    return f"{text} ({after} after Holm's correction), behind in {behind}"


def _counts(matches: Sequence[Match], duels: Duels) -> str:
    """A line per rival over all matches."""
    lines = [
        "| rival | of | ahead | after Holm | behind | after Holm |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    found: dict[str, list[Verdict]] = {}
    for match in matches:
        for rival in match.rivals:
            found.setdefault(_title(rival), []).extend(_of(rival, duels))
    for title, rows in found.items():
        counts = [
            sum(getattr(row, which) == word for row in rows)
            for word in (REPRODUCED, CONTRADICTED)
            for which in ("verdict", "holm")
        ]
        lines.append(f"| {title} | {len(rows)} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def _title(rival: Cell) -> str:
    """A rival with what it was given, or the champion without a rule."""
    words = (rival.variation or "").removeprefix(NOISY).strip(", ")
    if rival.scheme == CHAMPION:
        return f"`{rival.scheme}` {words}"
    return f"`{rival.scheme}`" + (f" + {words}" if words else "")


def _table(match: Match, duels: Duels) -> str:
    head = ["rival"]
    for key in BUDGETS:
        head += [f"at equal {key}", "sd", "n", "verdict"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "--:|--:|--:|---|" * len(BUDGETS)]
    for rival in match.rivals:
        cells = [_title(rival)]
        for row in _of(rival, duels):
            cells += [row.measured, row.spread, str(row.n), _verdict(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _verdict(row: Verdict) -> str:
    word, after = (WORDS.get(one or "", one or "") for one in (row.verdict, row.holm))
    shown = f"**{word}**" if row.verdict in WORDS else word
    return shown if after in ("", word) else f"{shown} ({after})"
