"""The page of a search: every number in it, and charts that a browser draws without a word."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from camu.experiments.tuning.ranges import Budget
from camu.experiments.tuning.trial import Trial
from camu.experiments.tuning.tuned import Tuned
from camu.learning.metrics import find_metric
from camu.report.charts import svg
from camu.report.tuning import write_tuning
from camu.schemes.tunable import Between, OneOf
from camu.schemes.variants import read_variants
from helpers.axe import violations
from helpers.browser import PATIENCE
from helpers.configs import small

SPACE = {
    "training.learning_rate": Between(0.01, 1.0, log=True),
    "training.server_momentum": OneOf((0.0, 0.9)),
    "share": Between(0.1, 1.0),
}


def searched(scheme: str, budgets: int, lift: float) -> Tuned:
    """A search of twelve trials, one of them given up, one blown up."""
    [variant] = read_variants(small(), [scheme])
    trials = []
    for number in range(12):
        settings = {
            "training.learning_rate": 0.01 * 1.4**number,
            "training.server_momentum": 0.9 * (number % 2),
            "share": 0.1 + 0.07 * number,
        }
        score = None if number == 5 else lift + 0.05 * number
        seeds = 1 if number == 7 else 2
        costs = dict.fromkeys(("rounds", "joules", "seconds", "megabytes"), 3.0 + number)
        rows = tuple((score,) * budgets for _ in range(seeds))
        trials.append(Trial(number, settings, rows, costs, 3, pruned=seeds == 1))
    axes = (Budget("joules", 9.0), Budget("seconds", 2.0))[:budgets]
    metric = find_metric("accuracy")
    return Tuned(variant, axes, SPACE, (1000, 1001), metric, tuple(trials))


@pytest.mark.slow
@pytest.mark.parametrize("budgets", [1, 2])
def test_the_page_has_the_answer_and_charts_of_all_trials(tmp_path: Path, budgets: int) -> None:
    found = [searched("fedpaq", budgets, 0.1), searched("local-sgd", budgets, 0.3)]
    text = write_tuning(found, tmp_path).read_text(encoding="utf-8")
    answer, rest = text.split("</thead>", 1)[1].split("</table>", 1)
    first, second = re.findall(r"<tr>(.*?)</tr>", answer, re.DOTALL)
    assert "local-sgd" in first
    assert "30.0" in first
    assert "85.0" in first  # 0.3 + 11 * 0.05
    assert "-20.0" in second  # behind the first
    assert rest.count("given up") >= 2
    assert "blown up" in rest
    data = re.search(r'id="page-data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    drawn = json.loads(data[1])["charts"]
    assert len(drawn) == 1 + 2 * (1 + (budgets > 1) + len(SPACE) + 1)
    for one in drawn.values():
        assert "$" not in re.sub(r'"\$schema"', "", json.dumps(one["spec"]))
        assert svg({**one["spec"], "width": 300, "datasets": one["datasets"]}).startswith("<svg")
    history = drawn["0-0"]["datasets"]["trials"]
    assert [row["score"] for row in history][5] is None
    best = [row["best"] for row in history]
    scores = [0.3 + 0.05 * number for number in range(12)]
    assert best == pytest.approx(
        [max(s for m, s in enumerate(scores[: n + 1]) if m not in (5, 7)) for n in range(12)]
    )


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
@pytest.mark.timeout(900)
def test_a_browser_draws_the_charts_of_a_scheme_when_its_part_is_opened(
    tmp_path: Path, browser: Any
) -> None:
    page = write_tuning([searched("fedpaq", 1, 0.1), searched("local-sgd", 1, 0.3)], tmp_path)
    context = browser.new_context(offline=True, viewport={"width": 390, "height": 800})
    tab, said = context.new_page(), []
    tab.set_default_timeout(PATIENCE)
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-state=ready]")
    assert tab.locator(".chart svg.marks").count() == 1 + 5
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.locator("details.card > summary").nth(1).click()
    # The page forbids eval, so a condition is awaited as a selector.
    tab.locator(".chart svg.marks").nth(10).wait_for()
    assert tab.locator(".chart svg.marks").count() == 11
    assert not said
    context.close()


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
@pytest.mark.timeout(900)
def test_axe_finds_nothing_wrong(tmp_path: Path, browser: Any) -> None:
    tab = browser.new_page(offline=True, viewport={"width": 1280, "height": 800})
    tab.set_default_timeout(PATIENCE)
    tab.goto(write_tuning([searched("fedpaq", 1, 0.1)], tmp_path).as_uri())
    tab.wait_for_selector("html[data-state=ready]")
    assert violations(tab) == []
    tab.close()
