# %% [markdown]
# # Plan your fleet
#
# A fleet file lists your devices: where they are, what data they hold, how fast they compute and
# how strongly they may send (`docs/fleet.md` has every column). From it camu says who should train
# with whom, who leads, and what a round costs. Nothing is trained here.

# %%
import json
from pathlib import Path

import camu

config = camu.load_config(preset="paper")
world = camu.read_fleet("docs/examples/fleet.csv", config=config)
world

# %% [markdown]
# The file leaves much open, for example the bandwidth; that comes from the configuration. Warnings
# name what would spoil a plan, such as a device that the base station hardly hears.

# %%
world.warnings()

# %% [markdown]
# ## One plan
#
# The scheme `camu` clusters the devices. Clusters that contribute much may update several times in
# a round, while the slowest cluster updates once (column N).

# %%
plan = camu.plan(camu.schemes.Camu(), world)
plan

# %%
for index, unit in enumerate(plan.units):
    names = ", ".join(world.devices.ids[device] for device in unit.members)
    print(f"{names}: N = {unit.local_updates}, waits {plan.idle_seconds(index):.2f} s")

# %% [markdown]
# ## Several plans
#
# What does a round cost under each scheme?

# %%
schemes = [camu.schemes.FedSgd(), camu.schemes.Clustered(), camu.schemes.Camu()]
for scheme in schemes:
    other = camu.plan(scheme, world)
    print(f"{other.scheme:10} {other.round_seconds:7.3f} s  {other.round_joules:7.3f} J")

# %% [markdown]
# ## Powers and updates that fit a budget
#
# `camu-joint` decides about powers and updates together, within an energy budget. Its answer
# carries a certificate: no other answer can be better by more than the gap.

# %%
joint = camu.plan(camu.schemes.CamuJoint(), world)
joint.allocation

# %% [markdown]
# ## Keep a plan
#
# A plan is plain data. `camu.simulate(world, scheme, plan=plan)` trains with one that was read
# from a file.

# %%
Path("plan.json").write_text(json.dumps(plan.to_dict(world)), encoding="utf-8")
again = camu.Plan.from_dict(json.loads(Path("plan.json").read_text(encoding="utf-8")))
assert again == plan
