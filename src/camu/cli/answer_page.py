"""The page that `camu answer` prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console

from camu.cli.console import counted, number_table, print_table

if TYPE_CHECKING:
    from camu.answers.answer import Answer, Comparison
    from camu.answers.budget import Option
    from camu.planning.central import Bill

_SPANS = (("days", 86_400.0, 2.0), ("h", 3600.0, 1.0), ("min", 60.0, 2.0))
_ENERGIES = (("kWh", 3.6e6, 0.1), ("kJ", 1e3, 1.0))
_MASSES = (("t", 1e6, 1.0), ("kg", 1e3, 1.0))
_SIZES = (("TB", 1e6, 1.0), ("GB", 1e3, 1.0), ("MB", 1.0, 0.1), ("kB", 1e-3, 0.0))


def span(seconds: float) -> str:
    """A time for people."""
    return _in_unit(seconds, _SPANS, "s")


def energy(joules: float) -> str:
    """An energy for people."""
    return _in_unit(joules, _ENERGIES, "J")


def mass(grams: float) -> str:
    """A mass for people."""
    return _in_unit(grams, _MASSES, "g")


def size(megabytes: float) -> str:
    """An amount of data for people."""
    return _in_unit(megabytes, _SIZES, "MB")


def _in_unit(value: float, units: tuple[tuple[str, float, float], ...], smallest: str) -> str:
    """A value in the first unit of which it has at least so many."""
    for name, factor, least in units:
        if abs(value) >= least * factor:
            return f"{value / factor:.3g} {name}"
    return f"{value:.3g} {smallest}"


def show_answer(found: Answer, chance: str | None, console: Console) -> None:
    """All parts of the page."""
    _show_costs(found, console)
    _show_verdict(found, console)
    _show_classes(found, chance, console)
    _show_batteries(found, console)
    _show_leaders(found, console)
    _show_holdups(found, console)
    _show_budget(found, console)
    _show_assumptions(found, console)


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False)


def _title(console: Console, text: str) -> None:
    console.print(f"\n{text}", style="bold")


def _show_costs(found: Answer, console: Console) -> None:
    dry, world = found.dry, found.world
    _say(
        console,
        f"{counted(world.devices.count, 'device')}, {counted(len(dry.plan.units), 'unit')}, scheme "
        f"{dry.plan.scheme}, {dry.plan.parameters:,} parameters.",
    )
    rounds = found.rounds
    spread = f" [{rounds.low:.3g} to {rounds.high:.3g}]" if rounds.interval else ""
    _say(console, f"{rounds.number:.4g}{spread} rounds: {rounds.how}.")
    cost, compared = dry.cost, found.comparison
    sent = dry.device_megabytes
    bits, number, co2 = found.sent.bits / 8e6, found.rounds.number, found.co2_grams
    rows = [
        ("time", span(cost.seconds), *(span(b.seconds) for b in _both(compared))),
        (
            "energy of the devices",
            energy(dry.round_joules),
            *(energy(b.joules) for b in _both(compared)),
        ),
        *([] if co2 is None else [("CO2 of that energy", *map(mass, co2.values()))]),
        ("sent by all", size(cost.megabytes), *(size(b.megabytes) for b in _both(compared))),
        ("sent per device", *(size(float(x.mean())) for x in (sent, number * sent, bits))),
        ("most by one device", *(size(float(x.max())) for x in (sent, number * sent, bits))),
    ]
    names = ("", "a round", f"{number:.4g} rounds", "sending the data once")
    console.print()
    print_table(number_table(names, rows, "What it costs", text=("",)), console)
    if (every := world.config.run.every_seconds) is not None:
        _say(
            console,
            f"Rounds begin every {span(every)} and work for {span(found.working.cost.seconds)}. "
            "Energy is what devices draw above resting.",
        )


def _both(compared: Comparison) -> tuple[Bill, Bill]:
    return compared.learning, compared.sending


def _show_verdict(found: Answer, console: Console) -> None:
    """Which way is cheaper, and from where on the other one."""
    compared, samples = found.comparison, int(found.world.devices.samples.sum())
    _title(console, verdict(compared))
    server = compared.server
    trained = (
        "; training there is not counted, because FLOPs of this model are not known"
        if server is None
        else f", and training there on {server.samples:.4g} samples, as many as the devices "
        f"take together, takes {span(server.seconds)} on {server.board}"
        + ("" if server.joules is None else f" ({energy(server.joules)} of the server)")
    )
    _say(
        console,
        f"The data are {samples:,} samples of {_bytes(found.sent.sample_bytes)} "
        f"(data.sample_bytes). Sending them takes {span(found.sent.bill.seconds)}{trained}.",
    )
    rounds, bytes_ = compared.even_rounds, compared.even_bytes
    _say(
        console,
        f"Break-even: sending the data costs as much as {_rounds(rounds.seconds)} of learning in "
        f"time, {_rounds(rounds.joules)} in energy and {_rounds(rounds.megabytes)} in megabytes. "
        f"{found.rounds.number:.4g} rounds pay off from {_bytes(bytes_.seconds)} per sample on in "
        f"time, {_bytes(bytes_.joules)} in energy and {_bytes(bytes_.megabytes)} in megabytes.",
    )
    _say(
        console,
        "Whether data may leave the devices is not a matter of cost, and new data have to be sent "
        "again.",
    )


def _rounds(number: float) -> str:
    if math.isinf(number):
        return "any number of rounds"
    return f"{number:.2g} of a round" if number < 1 else f"{number:.3g} rounds"


def _bytes(number: float) -> str:
    """The size of a sample."""
    if math.isinf(number):
        return "no size"
    return size(number / 1e6) if number >= 1e3 else f"{number:.3g} bytes"


def verdict(compared: Comparison) -> str:
    """A sentence on which way is cheaper, with the factors."""
    words = {"seconds": "time", "joules": "energy", "megabytes": "megabytes"}
    ways: dict[str, list[str]] = {}
    for name, way in compared.cheaper.items():
        pair = getattr(compared.learning, name), getattr(compared.sending, name)
        low, high = sorted(pair)
        factor = "" if way == "equal" else f" ({high / low:.3g} times)" if low > 0 else ""
        ways.setdefault(way, []).append(f"{words[name]}{factor}")
    parts = list[str]()
    for way, several in ways.items():
        who, verb = _WAYS[way], " is cheaper" if not parts and way != "equal" else ""
        parts.append(f"{who if not parts else who[0].lower() + who[1:]}{verb} in {_list(several)}")
    return "; ".join(parts) + "."


_WAYS = {
    "sending": "Sending the data once",
    "learning": "Learning on the devices",
    "equal": "Both cost the same",
}


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _show_classes(found: Answer, chance: str | None, console: Console) -> None:
    """What always naming the largest class gives."""
    from camu.learning.chance import DOMINATING  # loads numpy, which --help does without

    largest = found.largest_class
    if largest is not None and largest[1] >= DOMINATING:
        console.print()
        _say(
            console,
            f"{largest[1]:.0%} of the samples are of class {found.class_name}: always saying so "
            f"has {largest[1]:.0%} accuracy. Judge by balanced-accuracy (training.metrics).",
        )
    if chance is not None:
        _say(console, f"In the short runs, {chance}.")


def _show_batteries(found: Answer, console: Console) -> None:
    """Days until batteries are empty, and what the rounds take of them."""
    rows = []
    for name, device in found.first_median_last().items():
        facts = found.battery(device)
        share, whole = facts["learning_share"], facts["batteries"]
        days = (_days(facts[f"days_{way}_learning"]) for way in ("with", "without"))
        cells = (*days, f"{100 * (share or 0.0):.3g}", f"{whole:.3g}")
        rows.append((name, found.world.devices.ids[device], *cells))
    if not rows:
        return
    needed = f"batteries for {found.rounds.number:.4g} rounds"
    names = ("empty", "device", "days", "without learning", "learning %", needed)
    console.print()
    print_table(number_table(names, rows, "Batteries", text=names[:2]), console)
    every = found.world.config.run.every_seconds
    when = "one after the other" if every is None else f"every {span(every)}"
    _say(console, f"Days are until empty, with rounds {when} (run.every_seconds).")


def _days(number: float | None) -> str:
    return "never" if number is None else f"{number:.3g}"


def _show_leaders(found: Answer, console: Console) -> None:
    from camu.answers.leaders import RULES, SHOWN

    if len(found.rules) == 1:
        _title(console, "Who leads")
        _say(console, "Every device sends its own update.")
        return
    now, *others = found.rules
    ids = found.world.devices.ids
    rows = [
        (
            *(ids[one.device], str(one.members), f"{one.snr_db:.1f}", str(one.better)),
            *(span(one.seconds), energy(one.joules)),
        )
        for one in found.leaders[:SHOWN]
    ]
    many = len(found.leaders) > SHOWN
    title = f"Who leads: {len(found.leaders)}" + (
        f", the {SHOWN} that send longest" if many else ""
    )
    names = ("leader", "members", "SNR dB", "better uplinks", "sends", "energy")
    console.print()
    print_table(number_table(names, rows, title, text=names[:1]), console)
    _say(console, f"clustering.leader = {now.name}: {RULES[now.name]}.")
    for rule in others:
        _say(
            console,
            f"With {rule.name}, {RULES[rule.name]}, a round takes {span(rule.seconds)} and "
            f"{energy(rule.joules)} in place of {span(now.seconds)} and {energy(now.joules)}.",
        )


def _show_holdups(found: Answer, console: Console) -> None:
    ids, cost, plan = found.world.devices.ids, found.working.cost, found.working.plan
    rows = [
        (
            *(ids[one.device], span(one.compute_seconds), span(one.send_seconds)),
            *(span(one.saved_seconds), f"{one.saved_seconds / cost.seconds:.1%}"),
            energy(one.saved_joules),
        )
        for one in found.holdups
    ]
    names = ("device", "computes", "sends", "saves time", "of a round", "saves energy")
    console.print()
    title = f"What holds a round up, and what each saves if it were like {ids[found.like]}"
    if rows:
        print_table(number_table(names, rows, title, text=names[:1]), console)
    _say(console, _last_update(found))
    bought = found.purchase
    if bought is None and rows and found.holdups[0].saved_seconds < 0.01 * cost.seconds:
        ends = int((plan.arrival_seconds > 0.9 * plan.arrival_seconds.max()).sum())
        _say(
            console,
            f"No single one shortens a round much: {counted(ends, 'unit')} of {len(plan.units)} "
            "end in its last tenth, and hold it up together (--buy N).",
        )
    if bought is not None:
        _say(
            console,
            f"Replace {counted(len(bought.devices), 'device')}: "
            f"{', '.join(ids[k] for k in bought.devices)}. A round then takes "
            f"{span(bought.seconds)} and {energy(bought.joules)} in place of {span(cost.seconds)} "
            f"and {energy(found.working.round_joules)}.",
        )


def _last_update(found: Answer) -> str:
    """What the unit whose update is the last one does in a round."""
    plan, ids = found.working.plan, found.world.devices.ids
    last = int(plan.arrival_seconds.argmax())
    unit = plan.units[last]
    waits = float(plan.arrival_seconds[last]) - unit.ready_seconds - unit.uplink_seconds
    several = len(unit.members) > 1
    parts = [
        ("receive the model for", unit.downlink_seconds),
        ("compute for", unit.compute_seconds),
        ("send to the leader for", unit.gather_seconds),
        ("wait for others to send for", unit.wait_seconds),
    ]
    done = [f"{words} {span(seconds)}" for words, seconds in parts if seconds > 0]
    if not several:
        done = [f"{words.replace(' ', 's ', 1)}" for words in done]
    waiting = f"waits for the uplink for {span(waits)} and " if waits > 1e-9 else ""
    sends = f"sends for {span(unit.uplink_seconds)}"
    before = f"{'its members' if several else 'it'} {_list(done)}; " if done else ""
    who = "the leader" if several else "it"
    return (
        f"The last update of a round is that of {ids[unit.leader]}: {before}{who} {waiting}{sends}."
    )


def _show_budget(found: Answer, console: Console) -> None:
    budget, rounds = found.budget, found.rounds.number
    if not budget.given:
        return
    limits = [
        *([] if budget.seconds is None else [span(budget.seconds)]),
        *([] if budget.joules is None else [energy(budget.joules)]),
        *([] if budget.megabytes is None else [size(budget.megabytes)]),
        *([] if budget.round_joules is None else [f"{energy(budget.round_joules)} a round"]),
    ]
    _title(console, f"A budget of {_list(limits)}")
    if found.fitting_rounds >= rounds:
        _say(console, f"{rounds:.4g} rounds fit.")
        return
    _say(console, f"{found.fitting_rounds:.4g} of {rounds:.4g} rounds fit. What would fit more:")
    rows = [_option(one) for one in found.options]
    names = ("scheme", "bits", "devices", "% of samples", "rounds that fit", "time", "energy")
    table = number_table((*names, "sent"), rows, None, text=names[:1])
    print_table(table, console)
    _say(
        console,
        f"Costs are for {rounds:.4g} rounds. Fewer bits, fewer devices or another scheme may need "
        "more rounds to the same accuracy; bits per parameter are counted, not rounded to, in a "
        "simulation. --scheme NAME --target SCORE measures a scheme.",
    )


def _option(one: Option) -> tuple[str, ...]:
    fits = "any" if math.isinf(one.rounds) else f"{one.rounds:.4g}"
    return (
        *(one.scheme, str(one.bits), str(one.devices), f"{100 * one.samples_share:.0f}", fits),
        *(span(one.bill.seconds), energy(one.bill.joules), size(one.bill.megabytes)),
    )


def _show_assumptions(found: Answer, console: Console) -> None:
    rows = [
        (
            one.what,
            str(one.devices or ""),
            " or ".join(one.changes),
            *(
                f"{show(getattr(pair[0], name))} or {show(getattr(pair[1], name))}"
                for pair in (one.learning, one.sending)
                for name, show in (("seconds", span), ("joules", energy))
            ),
        )
        for one in found.moved
    ]
    names = ("assumed", "devices", "if it were", "learning", "", "sending", "")
    console.print()
    title = f"How far it moves if what is assumed is wrong ({found.rounds.number:.4g} rounds)"
    table = number_table(names, rows, title)
    table.columns[0].justify = "left"
    print_table(table, console)
    _say(
        console,
        "Sending is without training at the server. All else is in your file, or of a board; "
        "columns of a fleet file replace what is assumed.",
    )
