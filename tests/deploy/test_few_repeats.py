"""Lines that repeat are written once in ten minutes, with their number."""

from __future__ import annotations

import io
import logging

from camu.deploy.few_repeats import REPEAT_SECONDS, FewRepeats


def test_a_line_is_not_repeated_and_the_next_says_how_often() -> None:
    now, stream = [0.0], io.StringIO()
    log = logging.Logger("test")
    handler = logging.StreamHandler(stream)
    handler.addFilter(FewRepeats(lambda: now[0]))
    log.addHandler(handler)
    for _ in range(150):
        log.warning("node %s is not used: %s", 7, "no data")
        log.warning("round %d", int(now[0]))
        now[0] += 4.0
    assert stream.getvalue().count("node 7") == 1
    assert stream.getvalue().count("round") == 150
    now[0] = REPEAT_SECONDS
    log.warning("node %s is not used: %s", 7, "no data")
    last = stream.getvalue().splitlines()[-1]
    assert last == "node 7 is not used: no data (149 times more since it was last said)"


def test_memory_is_bounded() -> None:
    now = [0.0]
    few = FewRepeats(lambda: now[0])
    for number in range(5000):
        record = logging.LogRecord("x", logging.INFO, "", 0, f"line {number}", (), None)
        assert few.filter(record)
        now[0] += 0.1
    assert len(few._seen) <= 1000
