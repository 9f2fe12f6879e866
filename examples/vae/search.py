"""Compares the short training recipe with variants of it that change one thing.

    python -m examples.vae.search --dataset mnist --prior lars real_nvp --out out/search

Prints a table with the NLL of validation images. These are not among the training images. Test
images are not used. Finished trainings are kept in the output directory, so the same command
resumes. Each training takes the time of one run of `examples.vae.train`.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence

from examples.common import command_line, cores, files, locks, tables
from examples.common.command_line import UserError, positive, truncation
from examples.vae.config import MODELS, Config, PriorConfig
from examples.vae.datasets import DATASETS
from examples.vae.priors import PRIORS

MODULE = "examples.vae.search"

# A function from the short recipe to a changed one. The first argument is the configuration.
Change = Callable


def _replace(**changes) -> Change:
    return lambda config, schedule: dataclasses.replace(schedule, **changes)


def _rate(**changes) -> Change:
    """Changes the peak (by a factor) or the shape of the learning rate."""

    def change(config, schedule):
        from examples.vae.schedule import RiseAndFall

        settings = schedule.rate.get_config()
        settings["peak"] *= changes.get("factor", 1.0)
        if changes.get("cosine"):
            import keras

            rate = keras.optimizers.schedules.CosineDecay(
                0.0,
                settings["steps"] - settings["rise"],
                warmup_target=settings["peak"],
                warmup_steps=settings["rise"],
            )
        else:
            rate = RiseAndFall(**settings)
        return dataclasses.replace(schedule, rate=rate)

    return change


def _warm_up(factor: float) -> Change:
    return lambda config, schedule: dataclasses.replace(
        schedule, warm_up=int(factor * schedule.warm_up)
    )


def _paper(config, schedule):
    from examples.vae.schedule import Schedule

    return Schedule.of(dataclasses.replace(config, schedule="paper"))


BATCH_SIZES: Mapping[str, int] = {
    "batches of 64, twice the steps": 64,
    "batches of 256, half of the steps": 256,
}
RECIPES: Mapping[str, Change] = {
    "the short recipe": _replace(),
    "one draw of the latents": _replace(num_draws=1),
    "full gradient": _replace(path_gradient=False),
    "T fixed": _replace(growth=None),
    "no clipping": _replace(clip_norm=None),
    "beta_2 of 0.999": _replace(beta_2=0.999),
    "cosine decay": _rate(cosine=True),
    "half of the peak rate": _rate(factor=0.5),
    "twice the peak rate": _rate(factor=2.0),
    "half of the KL warm-up": _warm_up(0.5),
    "twice the KL warm-up": _warm_up(2.0),
    **dict.fromkeys(BATCH_SIZES, _replace()),
    "the paper's recipe": _paper,
}


def configuration(config: Config, recipe: str) -> Config:
    """Returns the configuration for a recipe. Each recipe trains on the same number of images."""
    batch_size = BATCH_SIZES.get(recipe, config.batch_size)
    steps = config.steps * config.batch_size // batch_size
    return dataclasses.replace(config, batch_size=batch_size, steps=steps)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command_line.Parser(MODULE, __doc__)
    add = parser.add_argument
    add("--dataset", required=True, choices=DATASETS, help="what to train on")
    add(
        "--prior", required=True, nargs="+", choices=PRIORS, help="priors, the columns of the table"
    )
    add("--model", choices=MODELS, default="vae", help="architecture")
    add("--out", type=pathlib.Path, required=True, help="directory for the results")
    add("--recipe", nargs="+", choices=RECIPES, default=None, help="recipes (default: all)")
    add("--steps", type=positive, default=10_000, help="optimizer steps of each training")
    add("--T", type=truncation, default=100, help="truncation of resampled priors, inf for none")
    add("--seed", type=int, default=0, help="seed for weights, batches and noise")
    add("--images", type=positive, default=2000, help="validation images, evenly spaced")
    add("--iwae-samples", type=positive, default=200, help="importance samples for each image")
    add("--z-samples", type=positive, default=10**6, help="draws for the estimate of Z")
    add("--data-dir", help="where the data set is (default: $TFP_LARS_DATA_DIR)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    cores.share()
    command_line.import_tensorflow()
    from examples.vae import datasets

    images = datasets.load(args.dataset, args.data_dir)
    print(f"{images.name}: {images.source}", flush=True)
    with locks.held(args.out):
        _compare(args, images)


def _compare(args: argparse.Namespace, images) -> None:
    """Trains what is not in the output directory, and prints the table."""
    rows = []
    diverged = []
    for recipe in args.recipe or RECIPES:
        rows.append([recipe])
        for prior in args.prior:
            nll = _result(args, images, recipe, prior)
            rows[-1].append(f"{nll:.2f}")
            if not math.isfinite(nll):
                diverged.append(f"{recipe}, {prior}")
            print(f"{recipe}, {prior}: {nll:.2f}", flush=True)
    print(tables.markdown(["recipe", *(PRIORS[prior].title for prior in args.prior)], rows))
    if diverged:
        raise UserError(f"the NLL is not finite for {', '.join(diverged)}.")


def _result(args, images, recipe: str, prior: str) -> float:
    """Returns the validation NLL of a training, from the output directory if it is there."""
    settings = {"steps": args.steps, "seed": args.seed, "schedule": "short"}
    T = args.T if PRIORS[prior].is_resampled else PriorConfig.T
    config = Config(args.dataset, args.model, PriorConfig(prior, T=T), **settings)
    config = configuration(config, recipe)
    evaluation = {name: getattr(args, name) for name in ("images", "iwae_samples", "z_samples")}
    wanted = {"recipe": recipe, "data": images.digest, **config.identity(), **evaluation}
    path = args.out / f"{recipe.replace(' ', '-')}-{config.name}-{args.steps}-s{args.seed}.json"
    if path.exists():
        found = files.read_json(path)
        if {name: found.get(name) for name in wanted} != wanted:
            raise UserError(f"{path} belongs to another configuration: choose another --out.")
        return found["nll"]
    nll = _validation_nll(config, images, RECIPES[recipe], evaluation)
    with files.explained(args.out):
        args.out.mkdir(parents=True, exist_ok=True)
        files.write_json(path, {**wanted, "nll": nll})
    return nll


def _validation_nll(config, images, change: Change, evaluation: Mapping) -> float:
    from examples.vae import batches, datasets
    from examples.vae.build import build
    from examples.vae.evaluation import validation_nll
    from examples.vae.schedule import Schedule

    model = build(config, schedule=change(config, Schedule.of(config)))
    training = batches.training_batches(
        images, batch_size=config.batch_size, seed=config.seed, start=0, stop=config.steps
    )
    model.fit(training, steps_per_epoch=config.steps, epochs=1, shuffle=False, verbose=0)
    pixels = datasets.spread(images.validation, evaluation["images"])
    return validation_nll(model, pixels, evaluation["iwae_samples"], evaluation["z_samples"])


if __name__ == "__main__":
    command_line.run(
        main, interrupted="the same command repeats the interrupted training and does the rest"
    )
