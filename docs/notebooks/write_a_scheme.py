# %% [markdown]
# # Write a scheme
#
# A scheme is a class. Only `plan` must be written; every other method has a default that gives the
# usual synchronous round. `docs/own-scheme.md` describes all methods, with FedProx, SCAFFOLD and
# FedBuff as examples.

# %%
from dataclasses import dataclass

import camu

overrides = {"run.rounds": 6, "data.samples_per_device": 30, "run.eval_every": 2}
world = camu.build_world(camu.load_config(preset="demo", overrides=overrides))

# %% [markdown]
# ## A plan
#
# `camu.single_devices` and `camu.clusters` make groups of devices, and `camu.assess` takes groups
# of your own. `camu.make_plan` turns groups and weights into a plan and computes what each unit
# costs. The fields of the class are the parameters of the scheme.


# %%
@dataclass(frozen=True)
class Regions(camu.Scheme):
    """One unit per region; regions count by their samples to a power."""

    exponent: float = 1.0

    def plan(self, world: camu.World) -> camu.Plan:
        """Group the devices by region."""
        members: dict[str, list[int]] = {}
        for device, region in enumerate(world.devices.regions):
            members.setdefault(region, []).append(device)
        groups = camu.assess(world, list(members.values()))
        voices = groups.samples**self.exponent
        return camu.make_plan(self, groups, voices / voices.sum())


camu.plan(Regions(), world)

# %%
camu.simulate(world, Regions()).history

# %% [markdown]
# ## Who takes part
#
# `select` chooses among the units that are idle. Randomness comes from `view.random()`, so that a
# run can be repeated and resumed to the bit.


# %%
class Sampled(camu.schemes.FedSgd):
    """FedAvg with five devices per round."""

    def select(self, view: camu.schemes.View, state: camu.schemes.State) -> list[int]:
        """Draw without replacement."""
        return list(view.random().numpy().choice(view.idle, 5, replace=False))


sampled = camu.simulate(world, Sampled()).history
assert all(record.units == 5 for record in sampled.records[1:])

# %% [markdown]
# ## How the server aggregates, with state
#
# `state` belongs to the scheme and is saved in checkpoints: arrays, numbers and text by name.


# %%
class Momentum(camu.schemes.FedSgd):
    """FedAvg with momentum on the server."""

    def aggregate(self, view: camu.schemes.View, state: camu.schemes.State) -> object:
        """Move along the mean update and a share of the last step."""
        mean = super().aggregate(view, state)
        step = mean.parameters - view.weights.parameters
        state["velocity"] = 0.5 * state.get("velocity", 0) + step
        return mean.with_parameters(view.weights.parameters + state["velocity"])


# %% [markdown]
# ## Does it help?

# %%
table = camu.compare(world, [camu.schemes.FedSgd(), Sampled(), Momentum(), Regions()], seeds=1)
for row in table.rows:
    joules = [run.joules for run in table.runs if run.scheme == row.scheme]
    print(f"{row.scheme:10} {row.final_score.mean:.2%}  {joules[0]:.3f} J")

# %% [markdown]
# Save the class in a file, and every command takes it: `camu compare --schemes
# fedsgd,./mine.py:Momentum`.
