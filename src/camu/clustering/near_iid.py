"""Groups of devices whose pooled labels look like everyone's.

A device's excess is its samples of each label minus those that it would hold if its labels were
distributed as everyone's. Excesses add up, so a group is near-IID where the sum over its members is
small: devices are dealt out so that sums cancel, and swapped as long as that helps.
"""

from __future__ import annotations

import numpy as np

from camu.arrays import Float64, Int64
from camu.seeding import derive

_PARTNERS = 512  # devices that one device is compared with in a pass; all of a smaller set
_PASSES = 20
_PASSES_OF_MANY = 3  # of more devices than _PARTNERS
_MOST_GROUPS = 512  # that a device chooses among
_STARTS = 8  # of which the best is kept; one for more devices than _PARTNERS


def excess(label_counts: Int64, everyone: Int64) -> Float64:
    """Samples of each label beyond everyone's share, for each device or group (K, L)."""
    share = everyone / everyone.sum()
    return np.asarray(label_counts - label_counts.sum(axis=1, keepdims=True) * share)


def imbalance(rows: Float64, group: Int64) -> float:
    """The sum over groups of the squared excess: what `balanced_groups` makes small."""
    sums = np.zeros((int(group.max()) + 1, rows.shape[1]))
    np.add.at(sums, group, rows)
    return float(np.square(sums).sum())


def dealt_groups(label_counts: Int64, everyone: Int64, groups: int) -> Int64:
    """As `balanced_groups`, dealt out once and not swapped: quicker, and less balanced."""
    rows = excess(label_counts, everyone)
    return _dealt(rows, _largest_first(rows), groups)


def balanced_groups(label_counts: Int64, everyone: Int64, groups: int, seed: int) -> Int64:
    """The group of each device, in groups of equal size (or one device more), near-IID.

    Parameters:
        label_counts: samples of each label of the devices that are grouped, (K, L).
        everyone: samples of each label of the whole fleet, (L,).
        groups: how many groups, at most K.
        seed: of the further starts.

    Returns:
        Group numbers (K,). Of up to 512 devices, no swap of two makes the imbalance smaller.
    """
    rows = excess(label_counts, everyone)
    order = _largest_first(rows)
    best = _swapped(rows, _dealt(rows, order, groups), order)
    if len(rows) > _PARTNERS or groups == 1:
        return best
    for start in range(1, _STARTS):
        order = derive(seed, "near-iid", start).numpy().permutation(len(rows))
        found = _swapped(rows, _dealt(rows, order, groups), order)
        if imbalance(rows, found) < imbalance(rows, best) * (1 - 1e-12):
            best = found
    return best


def _largest_first(rows: Float64) -> Int64:
    return np.argsort(-np.square(rows).sum(axis=1), kind="stable")


def _dealt(rows: Float64, order: Int64, groups: int) -> Int64:
    """Each device in turn joins the group with room whose sum it brings closest to zero.

    Of many groups each part of them has devices of its own, as alike as cards can be dealt.
    """
    parts = groups // _MOST_GROUPS + 1
    if parts == 1:
        return _dealt_at_once(rows, order, groups)
    least, larger = divmod(len(rows), groups)
    ends = np.arange(parts + 1) * groups // parts
    lengths = np.diff(ends) * least + np.diff(np.arange(parts + 1) * larger // parts)
    piles = order[np.argsort(np.argmax(rows[order], axis=1), kind="stable")]  # by largest excess
    turns = np.concatenate([(np.arange(own) + 0.5) / own for own in lengths])
    part = np.empty(len(rows), dtype=np.int64)
    part[piles] = np.repeat(np.arange(parts), lengths)[np.argsort(turns, kind="stable")]
    group = np.empty(len(rows), dtype=np.int64)
    for k in range(parts):
        own = order[part[order] == k]
        dealt = _dealt_at_once(rows[own], np.arange(len(own)), int(ends[k + 1] - ends[k]))
        group[own] = ends[k] + dealt
    return group


def _dealt_at_once(rows: Float64, order: Int64, groups: int) -> Int64:
    sums, sizes = np.zeros((groups, rows.shape[1])), np.zeros(groups, dtype=np.int64)
    least, larger = divmod(len(rows), groups)
    group = np.empty(len(rows), dtype=np.int64)
    for device in order.tolist():
        full = (sizes > least) | ((sizes == least) & ((sizes > least).sum() >= larger))
        worse = np.where(full, np.inf, sums @ rows[device])
        near = np.flatnonzero(worse <= worse.min() + 1e-9)
        chosen = near[np.argmin(sizes[near])]
        group[device] = chosen
        sums[chosen] += rows[device]
        sizes[chosen] += 1
    return group


def _swapped(rows: Float64, group: Int64, order: Int64) -> Int64:
    """Swap pairs of devices until none helps, each device with the partner that helps most."""
    group, count = group.copy(), len(rows)
    sums = np.zeros((int(group.max()) + 1, rows.shape[1]))
    np.add.at(sums, group, rows)
    square = np.square(rows).sum(axis=1)
    window, least = np.arange(min(count, _PARTNERS)), 1e-9 * max(float(square.max()), 1e-300)
    for turn in range(_PASSES if count <= _PARTNERS else _PASSES_OF_MANY):
        changed = False
        for place, device in enumerate(order.tolist()):
            others = order[(place + 1 + turn * len(window) + window) % count]
            mine, theirs = sums[group[device]], sums[group[others]]
            apart = rows[others] - rows[device]
            # Half the change of the imbalance if the two trade places.
            change = ((mine - theirs) * apart).sum(axis=1) + np.square(apart).sum(axis=1)
            change[group[others] == group[device]] = np.inf
            best = int(np.argmin(change))
            if change[best] < -least:
                other = int(others[best])
                sums[group[device]] += apart[best]
                sums[group[other]] -= apart[best]
                group[[device, other]] = group[[other, device]]
                changed = True
        if not changed:
            break
    return group


def grown_groups(label_counts: Int64, order: list[int], size: int, closeness: float) -> Int64:
    """Groups that grow one by one until they are close to everyone's labels.

    Each starts with the next device in order and takes the one that brings it closest, until the
    sum of the differences of label shares is at most `closeness` or the group has `size` devices.
    """
    everyone = label_counts.sum(axis=0)
    group, left = np.full(len(label_counts), -1), list(order)
    while left:
        members, pooled = [left[0]], label_counts[left.pop(0)].astype(float)
        while left and len(members) < size and _apart(pooled, everyone) > closeness:
            best = min(left, key=lambda k: _apart(pooled + label_counts[k], everyone))
            left.remove(best)
            members.append(best)
            pooled += label_counts[best]
        group[members] = group.max() + 1
    return group


def _apart(one: Float64, other: Int64) -> float:
    return float(np.abs(one / one.sum() - other / other.sum()).sum())
