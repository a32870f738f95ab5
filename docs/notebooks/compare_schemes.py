# %% [markdown]
# # Compare schemes
#
# Schemes are compared on the same worlds: the same devices, data, initial weights, batches and
# fading. The settings below are small, so that this notebook takes seconds; leave `overrides` out
# for the whole preset.

# %%
import torch

import camu

config = camu.load_config(
    preset="demo", overrides={"run.rounds": 8, "data.samples_per_device": 30, "run.eval_every": 2}
)

# %% [markdown]
# ## One run
#
# `simulate` returns a result: the history of the run, its plan and the trained model.

# %%
world = camu.build_world(config)
result = camu.simulate(world, camu.schemes.Camu())
result.history

# %%
result.history.to_frame().tail()

# %% [markdown]
# The model is an ordinary torch module. It takes float images in [0, 1].

# %%
model = result.model()
data = world.federation.dataset
images = torch.from_numpy(data.test_inputs[:, None]).float() / 255
labels = torch.from_numpy(data.test_labels)
accuracy = (model(images).argmax(dim=1) == labels).double().mean().item()
print(f"{accuracy:.2%}, and in the history {result.history.final_score:.2%}")

# %% [markdown]
# ## Several schemes and seeds
#
# The first scheme is the baseline. Intervals are 95 % over the seeds, and differences are paired
# by seed. Two seeds give wide intervals; take ten or more for a claim.

# %%
table = camu.compare(config, ["fedsgd", "clustered", "camu"], seeds=2)
table

# %% [markdown]
# Schemes with parameters are given as objects.

# %%
quantiles = [camu.schemes.Camu(threshold_quantile=share) for share in (0.2, 0.8)]
for row in camu.compare(world, quantiles, seeds=1).rows:
    print(row.scheme, f"{row.final_score.mean:.2%}")

# %% [markdown]
# ## Into a paper
#
# `to_csv` has every run, `to_latex` the table. On the command line, `camu compare --csv FILE
# --latex FILE` also keeps all runs, and continues where it was cut off.

# %%
print(table.to_csv())
print(table.to_latex())
