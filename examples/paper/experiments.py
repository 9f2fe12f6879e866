"""The paper's experiments: the runs behind each table and figure, and the paper's numbers.

The paper is Bauer and Mnih (2019), "Resampled priors for variational autoencoders". Each table also
lists the paper's findings. `examples.paper.runner` runs the experiments. `examples.paper.report`
prints our numbers beside the paper's.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from examples.common.command_line import truncation, units
from examples.paper.findings import FigureFinding, Finding, Lower, NearOneOverT, NoGain, Same
from examples.paper.kinds import Figure, Row, Table
from examples.paper.run import Run
from examples.vae.config import MODELS, Config, PriorConfig
from examples.vae.datasets import DATASETS


def run(
    dataset: str,
    prior: str,
    model: str = "vae",
    *,
    accept_units: str | None = None,
    T: str = "100",
    latents: int = 50,
    post_hoc: bool = False,
    schedule: str = "auto",
    steps: int | None = None,
) -> Run:
    """Returns one run. Tables that show the same run share it.

    Args:
      dataset: A key of `DATASETS`.
      prior: A key of `PRIORS`.
      model: A key of `MODELS`.
      accept_units: Hidden layers of a(z), such as `100-100`. `None` for the default.
      T: Truncation, an integer or `inf`.
      latents: Dimensions of each latent.
      post_hoc: Whether to train only the prior, on top of the finished run with a standard prior.
      schedule: Training recipe, one of `SCHEDULES`.
      steps: Number of training steps at every preset. `None` for the number of the preset.
    """
    config = Config(
        dataset,
        model,
        PriorConfig(prior, accept_units and units(accept_units), truncation(T)),
        num_latents=latents,
        schedule=schedule,
        post_hoc=post_hoc,
    )
    return Run(config, steps)


# ------------------------------------------------------------------------------------- table 1
# (standard, LARS)
_TABLE1 = {
    ("static_mnist", "vae"): (89.11, 86.53),
    ("static_mnist", "hvae"): (85.91, 84.42),
    ("static_mnist", "conv_hvae"): (82.63, 81.70),
    ("mnist", "vae"): (84.97, 83.03),
    ("mnist", "hvae"): (82.66, 81.62),
    ("mnist", "conv_hvae"): (81.21, 80.30),
    ("omniglot", "vae"): (104.47, 102.63),
    ("omniglot", "hvae"): (101.38, 100.40),
    ("omniglot", "conv_hvae"): (97.76, 97.08),
    ("fashion_mnist", "vae"): (228.68, 227.45),
    ("fashion_mnist", "hvae"): (227.40, 226.68),
    ("fashion_mnist", "conv_hvae"): (226.39, 225.92),
}


def _table1() -> Table:
    rows, checks = [], []
    for (dataset, model), (standard, lars) in _TABLE1.items():
        title = f"{DATASETS[dataset].title}, {MODELS[model].title}"
        high, low = f"{title}, standard", f"{title}, LARS"
        rows.append(Row(high, run(dataset, "standard", model), (standard,)))
        rows.append(Row(low, run(dataset, "lars", model), (lars,), versus=high))
        checks.append(Lower(low, high))
    text = "the resampled prior beats the standard one on every data set and architecture"
    title = "Test NLL of different models, standard and resampled prior"
    return Table("table1", title, ("nll",), tuple(rows), (Finding(text, tuple(checks)),))


# ------------------------------------------------------------------------------------- table 2
def _table2() -> Table:
    printed = {
        "mnist": (
            (89.0, 25.8, 63.2, 1.0),
            (87.3, 24.1, 63.2, 0.023),
            (86.6, 24.7, 61.9, 0.015),
        ),
        "omniglot": (
            (110.8, 37.2, 73.6, 1.0),
            (108.8, 35.2, 73.6, 0.015),
            (108.4, 35.9, 72.5, 0.011),
        ),
    }
    rows, beats, untouched, order = [], [], [], []
    for dataset, (standard, post_hoc, joint) in printed.items():
        labels = [
            f"{DATASETS[dataset].title}, {kind}"
            for kind in ("standard", "LARS post-hoc", "LARS joint training")
        ]
        rows += [
            Row(labels[0], run(dataset, "standard"), standard),
            Row(labels[1], run(dataset, "lars", post_hoc=True), post_hoc, versus=labels[0]),
            Row(labels[2], run(dataset, "lars"), joint, versus=labels[0]),
        ]
        beats += [Lower(label, labels[0], "elbo") for label in labels[1:]]
        untouched.append(Same(labels[1], labels[0], "recons"))
        order.append(Lower(labels[2], labels[1], "elbo"))
    return Table(
        "table2",
        "The bound and its parts: standard prior, post-hoc and jointly trained resampled prior",
        ("elbo", "kl", "recons", "z"),
        tuple(rows),
        (
            Finding("post-hoc and joint training both beat the standard prior", tuple(beats)),
            Finding("post-hoc training leaves the reconstruction untouched", tuple(untouched)),
            Finding("joint training reaches a better bound than post-hoc", tuple(order)),
        ),
    )


# -------------------------------------------------------------------------------- tables 3 and 4
_CITED = "the paper's number is Tomczak and Welling's (2018), of a larger architecture"

_TABLE3 = Table(
    "table3",
    "Test NLL on dynamic MNIST, beside other approaches",
    ("nll",),
    (
        Row("VAE (L=2) + VGP", None, (81.32,), note="Tran et al. (2015)"),
        Row("LVAE (L=5)", None, (81.74,), note="Sønderby et al. (2016)"),
        Row("HVAE (L=2) + VampPrior", run("mnist", "vamp", "hvae"), (81.24,), note=_CITED),
        Row("HVAE (L=2) + LARS", run("mnist", "lars", "hvae"), (81.62,), "HVAE (L=2) + VampPrior"),
        Row("VAE + IAF", None, (79.10,), note="Kingma et al. (2016)"),
        Row("ConvHVAE + VampPrior", run("mnist", "vamp", "conv_hvae"), (79.75,), note=_CITED),
        Row("ConvHVAE + LARS", run("mnist", "lars", "conv_hvae"), (80.30,), "ConvHVAE + VampPrior"),
    ),
    (
        Finding(
            "on MNIST the VampPrior is somewhat better than LARS",
            (
                Lower("HVAE (L=2) + VampPrior", "HVAE (L=2) + LARS"),
                Lower("ConvHVAE + VampPrior", "ConvHVAE + LARS"),
            ),
        ),
    ),
)

_TABLE4 = Table(
    "table4",
    "Test NLL on Omniglot, beside other approaches",
    ("nll",),
    (
        Row("IWAE (L=2)", None, (103.38,), note="Burda et al. (2016)"),
        Row("LVAE (L=5)", None, (102.11,), note="Sønderby et al. (2016)"),
        Row("HVAE (L=2) + VampPrior", run("omniglot", "vamp", "hvae"), (101.18,), note=_CITED),
        Row(
            "HVAE (L=2) + LARS",
            run("omniglot", "lars", "hvae"),
            (100.40,),
            "HVAE (L=2) + VampPrior",
        ),
        Row(
            "ConvHVAE (L=2) + VampPrior",
            run("omniglot", "vamp", "conv_hvae"),
            (97.56,),
            note=_CITED,
        ),
        Row(
            "ConvHVAE (L=2) + LARS",
            run("omniglot", "lars", "conv_hvae"),
            (97.08,),
            "ConvHVAE (L=2) + VampPrior",
        ),
    ),
    (
        Finding(
            "on Omniglot LARS is somewhat better than the VampPrior",
            (
                Lower("HVAE (L=2) + LARS", "HVAE (L=2) + VampPrior"),
                Lower("ConvHVAE (L=2) + LARS", "ConvHVAE (L=2) + VampPrior"),
            ),
        ),
    ),
)


# ------------------------------------------------------------------------------------- table 5
def _accept(size: str) -> str:
    return f"VAE + LARS, a = MLP[{size}]"


def _table5() -> Table:
    printed = {
        "10-10": (84.08, 0.02),
        "50-50": (83.29, 0.016),
        "100-100": (83.05, 0.015),
        "50-50-50": (83.09, 0.015),
        "100-100-100": (82.94, 0.014),
    }
    standard = "VAE (L=1, MLP)"
    rows = [Row(standard, run("mnist", "standard"), (84.97, 1.0))]
    rows += [
        Row(_accept(size), run("mnist", "lars", accept_units=size), numbers, versus=standard)
        for size, numbers in printed.items()
    ]
    small = Finding(
        "even a small a(z), 10-10, improves on the standard prior",
        (Lower(_accept("10-10"), standard),),
    )
    large = Finding("10-10 is worse than 100-100", (Lower(_accept("100-100"), _accept("10-10")),))
    return Table(
        "table5",
        "Sizes of a(z): test NLL and Z on dynamic MNIST, T = 100",
        ("nll", "z"),
        tuple(rows),
        (small, large),
    )


# ------------------------------------------------------------------------------------- table 6
def _table6() -> Table:
    printed = {
        "2": (84.60, 0.19, 25.4, 63.2),
        "5": (84.11, 0.12, 25.1, 63.0),
        "10": (83.71, 0.08, 25.0, 62.6),
        "50": (83.24, 0.03, 24.8, 62.1),
        "100": (83.05, 0.014, 24.7, 61.9),
        "inf": (82.67, 2e-6, 24.8, 61.5),
    }
    standard = "VAE (L=1, MLP)"
    labels = {T: f"VAE + LARS, T = {T}" for T in printed}
    rows = [Row(standard, run("mnist", "standard"), (84.97, 1.0, 25.8, 63.3))]
    rows += [
        Row(labels[T], run("mnist", "lars", T=T), numbers, versus=standard)
        for T, numbers in printed.items()
    ]
    order = [standard, *labels.values()]
    steps = list(itertools.pairwise(order))  # T grows from the first of a pair to the second
    return Table(
        "table6",
        "Influence of the truncation T, dynamic MNIST, a = MLP[100-100]",
        ("nll", "z", "kl", "recons"),
        tuple(rows),
        (
            Finding("the NLL falls as T grows", tuple(Lower(b, a) for a, b in steps)),
            Finding("Z falls as T grows", tuple(Lower(b, a, "z") for a, b in steps)),
            Finding(
                "Z is near 1/T, within a factor of 5",
                tuple(NearOneOverT(labels[T]) for T in printed if T != "inf"),
            ),
        ),
    )


# -------------------------------------------------------------------------------- tables 7 and 9
def _proposals(
    name: str,
    dataset: str,
    printed: Mapping[str, tuple],
    extra: tuple[Row, ...] = (),
    extra_findings: tuple[Finding, ...] = (),
) -> Table:
    standard = "VAE (L=1) + N(0, I)"
    names = {
        standard: "standard",
        "VAE + RealNVP": "real_nvp",
        "VAE + MAF": "maf",
        "VAE + LARS N(0, I)": "lars",
        "VAE + LARS RealNVP": "lars_real_nvp",
    }
    rows = [
        Row(
            label,
            run(dataset, prior),
            printed.get(prior, (None, None)),
            versus=None if label == standard else standard,
            note="" if prior in printed else "not in the paper's table",
        )
        for label, prior in names.items()
    ]
    order = ["VAE + LARS RealNVP", "VAE + RealNVP", "VAE + LARS N(0, I)", standard]
    checks = tuple(Lower(a, b) for a, b in itertools.pairwise(order))
    findings = [Finding("LARS + RealNVP beats RealNVP beats LARS beats the standard prior", checks)]
    if "maf" in printed:
        maf = (Lower("VAE + LARS RealNVP", "VAE + MAF"), Lower("VAE + MAF", "VAE + RealNVP"))
        findings.append(Finding("MAF lies between RealNVP and LARS + RealNVP", maf))
    return Table(
        name,
        f"More expressive proposals and priors, {DATASETS[dataset].title}",
        ("nll", "z"),
        (*rows, *extra),
        (*findings, *extra_findings),
    )


_TABLE7 = _proposals(
    "table7",
    "mnist",
    {
        "standard": (84.97, 1.0),
        "real_nvp": (81.86, 1.0),
        "maf": (81.58, 1.0),
        "lars": (83.04, 0.015),
        "lars_real_nvp": (81.15, 0.027),
    },
    (
        Row(
            "VAE + LARS in each dimension",
            run("mnist", "lars_dimensionwise"),
            (None, None),
            versus="VAE (L=1) + N(0, I)",
            note='no number in the paper, which says that it "did not improve" on a standard prior',
        ),
    ),
    (
        Finding(
            "resampling each dimension by itself brings nothing (here: at most 0.3 nats)",
            (NoGain("VAE + LARS in each dimension", "VAE (L=1) + N(0, I)"),),
        ),
    ),
)

_TABLE9 = _proposals(
    "table9",
    "omniglot",
    {
        "standard": (104.53, 1.0),
        "real_nvp": (101.50, 1.0),
        "lars": (102.68, 0.012),
        "lars_real_nvp": (100.56, 0.018),
    },
)

# ------------------------------------------------------------------------------------- table 8
OUTPUT_VAE = run("mnist", "lars", "output_vae")

_TABLE8 = Table(
    "table8",
    "Resampled outputs, dynamic MNIST",
    ("nll", "z"),
    (
        Row("VAE (L=1), N(0, I) prior", run("mnist", "standard"), (84.97, 1.0)),
        Row(
            "VAE, resampled N(0, I) prior",
            run("mnist", "lars"),
            (83.04, 0.015),
            "VAE (L=1), N(0, I) prior",
        ),
        Row("VAE, resampled outputs", OUTPUT_VAE, (83.63, 0.014), "VAE (L=1), N(0, I) prior"),
    ),
    (
        Finding(
            "resampled outputs beat the plain VAE",
            (Lower("VAE, resampled outputs", "VAE (L=1), N(0, I) prior"),),
        ),
        Finding(
            "a resampled prior is better still",
            (Lower("VAE, resampled N(0, I) prior", "VAE, resampled outputs"),),
        ),
    ),
)


# ------------------------------------------------------------------------------------- figures
FIGURES: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure("figure_toy", "The study in the plane", ("examples.toy_2d",)),
        Figure(
            "figure_ranked",
            "Draws from the proposal ranked by a(z): joint, post-hoc, resampled outputs",
            ("examples.paper.figures", "ranked"),
            (run("mnist", "lars"), run("mnist", "lars", post_hoc=True), OUTPUT_VAE),
        ),
        Figure(
            "figure_z_trace",
            "The running estimate of Z",
            ("examples.paper.figures", "z_trace"),
            (run("mnist", "lars"),),
        ),
        Figure(
            "figure_latent_2d",
            "A latent space of two dimensions: standard, a(z) of 100-100 and of 20-20, post-hoc",
            ("examples.paper.figures", "latent_2d"),
            (
                run("mnist", "standard", latents=2),
                run("mnist", "lars", latents=2),
                run("mnist", "lars", accept_units="20-20", latents=2),
                run("mnist", "lars", latents=2, post_hoc=True),
            ),
            ("standard", "LARS, a = MLP[100-100]", "LARS, a = MLP[20-20]", "LARS post-hoc"),
            {
                "kl": (0.4, 0.15, 0.20, 0.1),
                "kl_proposal": (None, 1.14, 1.15, 0.4),
                "z": (None, 0.03, 0.02, 0.06),
            },
            (
                FigureFinding(
                    "a resampled prior is closer to the aggregate posterior than the standard "
                    "one, in KL",
                    "kl",
                ),
            ),
        ),
    )
}

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        _table1(),
        _table2(),
        _TABLE3,
        _TABLE4,
        _table5(),
        _table6(),
        _TABLE7,
        _TABLE8,
        _TABLE9,
    )
}
