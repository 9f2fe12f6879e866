"""Tables that the paper does not have: other budgets, and several trainings of the same runs.

They are selected by name. They are not part of the groups `tables` and `all`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from examples.paper.experiments import run
from examples.paper.findings import Finding, Lower
from examples.paper.kinds import Row, Table
from examples.paper.run import Run
from examples.vae.datasets import DATASETS


def _headline(steps: int = 200_000) -> Table:
    printed = {
        "standard normal": (run("mnist", "standard", steps=steps), (84.97, 1.0)),
        "LARS, T = 100": (run("mnist", "lars", steps=steps), (83.04, 0.015)),
        "LARS, T = inf": (run("mnist", "lars", T="inf", steps=steps), (82.67, 2e-6)),
        "RealNVP": (run("mnist", "real_nvp", steps=steps), (81.86, 1.0)),
        "LARS + RealNVP": (run("mnist", "lars_real_nvp", steps=steps), (81.15, 0.027)),
    }
    standard, *others = printed
    rows = [
        Row(label, entry, numbers, versus=standard if label in others else None)
        for label, (entry, numbers) in printed.items()
    ]
    checks = tuple(Lower(b, a) for a, b in itertools.pairwise(printed))
    return Table(
        "headline",
        f"Priors of a VAE on dynamic MNIST after {steps:,} steps, beside tables 6 and 7",
        ("nll", "z"),
        tuple(rows),
        (Finding("each prior beats the one above it", checks),),
    )


def _million(steps: int = 10**6) -> Table:
    """Whether the short recipe, the default below 10^6 steps, still improves there."""
    standard, lars = "standard normal", "LARS, T = 100"

    def entry(prior: str) -> Run:
        return run("mnist", prior, schedule="short", steps=steps)

    return Table(
        "million",
        f"Standard and resampled prior after {steps:,} steps of the short recipe, dynamic MNIST",
        ("nll", "z"),
        (
            Row(standard, entry("standard"), (84.97, 1.0)),
            Row(lars, entry("lars"), (83.04, 0.015), versus=standard),
        ),
        (Finding("the resampled prior is better", (Lower(lars, standard),)),),
    )


_SEEDS = Table(
    "seeds",
    "Three trainings of the standard and of the resampled prior, dynamic MNIST",
    ("nll", "z"),
    (
        Row("standard normal", run("mnist", "standard"), (84.97, 1.0)),
        Row("LARS, T = 100", run("mnist", "lars"), (83.04, 0.015), versus="standard normal"),
    ),
    (Finding("the resampled prior is better", (Lower("LARS, T = 100", "standard normal"),)),),
    num_seeds=3,
)


def _order(steps: int = 10_000) -> Table:
    """Data that the training recipe was not chosen on. Run it with another seed than 0."""
    names = {"standard normal": {}, "LARS, T = 100": {"prior": "lars"}}
    names |= {"LARS, T = inf": {"prior": "lars", "T": "inf"}, "RealNVP": {"prior": "real_nvp"}}
    rows, checks = [], []
    for dataset in ("mnist", "fashion_mnist"):
        labels = [f"{DATASETS[dataset].title}, {name}" for name in names]
        for label, settings in zip(labels, names.values(), strict=True):
            entry = run(dataset, **{"prior": "standard", **settings}, steps=steps)
            rows.append(
                Row(label, entry, (None,), versus=None if label == labels[0] else labels[0])
            )
        checks += [Lower(b, a) for a, b in itertools.pairwise(labels)]
    return Table(
        "order",
        f"The order of the priors after {steps:,} steps",
        ("nll",),
        tuple(rows),
        (Finding("each prior beats the one above it", tuple(checks), "Expected on each data set"),),
    )


def _outputs() -> Table:
    """Whether resampled outputs beat a resampled prior depends on the length of training."""
    kinds = {
        "standard": ("standard", "vae"),
        "resampled prior": ("lars", "vae"),
        "resampled outputs": ("lars", "output_vae"),
    }
    rows = []
    for budget, steps in {"short": 10_000, "as in table8": None, "long": 200_000}.items():
        labels = [f"{budget}, {kind}" for kind in kinds]
        for label, (prior, model) in zip(labels, kinds.values(), strict=True):
            entry = run("mnist", prior, model, steps=steps)
            versus = None if label == labels[0] else labels[0]
            rows.append(Row(label, entry, (None, None), versus=versus))
    return Table(
        "outputs",
        "Resampled prior and resampled outputs after short and long training, dynamic MNIST",
        ("nll", "z"),
        tuple(rows),
        (
            Finding(
                "a resampled prior is better than resampled outputs (here: after long training)",
                (Lower("long, resampled prior", "long, resampled outputs"),),
            ),
        ),
    )


MORE_TABLES: Mapping[str, Table] = {
    table.name: table for table in (_headline(), _million(), _SEEDS, _order(), _outputs())
}
