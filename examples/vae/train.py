"""Trains one VAE: one data set, one architecture, one prior. Interrupted runs resume.

    python -m examples.vae.train --dataset mnist --prior lars --steps 100000 --out out/lars

The output directory holds `config.json`, `checkpoints/` and `tensorboard/`. After the training it
also holds `metrics.json` and pictures (see `examples.vae.evaluate`). The same command resumes an
interrupted run from its last checkpoint. On a CPU its final weights equal those of an uninterrupted
run.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
from collections.abc import Sequence

from examples.common import command_line, cores, files, locks
from examples.common.command_line import UserError, positive, truncation, units
from examples.vae import cluster
from examples.vae.config import MODELS, SCHEDULES, Config, PriorConfig
from examples.vae.datasets import DATASETS
from examples.vae.evaluate import add_evaluation, evaluation_of
from examples.vae.priors import PRIORS
from examples.vae.run_directory import RunDirectory

MODULE = "examples.vae.train"

# Options by the field of `Config` or `PriorConfig` that they set.
_CONFIG = {
    "model": {"choices": MODELS, "help": "architecture"},
    "steps": {"type": positive, "help": "optimizer steps; the paper's are 10^7"},
    "seed": {"type": int, "help": "seed for weights, batches and noise"},
    "schedule": {
        "choices": SCHEDULES,
        "help": "training recipe: the paper's, or one for fewer than 10^6 steps; auto chooses by "
        "the number of steps",
    },
    "num_latents": {"option": "latents", "type": positive, "help": "dimensions of each latent"},
    "batch_size": {"type": positive, "help": "images for each step"},
    "checkpoint_every": {"type": positive, "help": "steps between checkpoints"},
}
_PRIOR = {
    "name": {"option": "prior", "choices": PRIORS, "help": "prior of the topmost latent"},
    "accept_units": {
        "type": units,
        "help": "hidden layers of a, as in 50-50-50 (default: 100-100; 20-20 for "
        "lars_dimensionwise, 300-300 for output_vae)",
    },
    "T": {"type": truncation, "help": "truncation, inf for none"},
    "num_samples": {
        "option": "S",
        "type": positive,
        "help": "proposals for each estimate of Z in training",
    },
    "decay": {"type": float, "help": "decay of the moving average of Z"},
    "num_components": {"option": "components", "type": positive, "help": "components of mog, vamp"},
}


def _parser() -> command_line.Parser:
    parser = command_line.Parser(MODULE, __doc__)
    add = parser.add_argument
    add("--dataset", choices=DATASETS, default=argparse.SUPPRESS, help="what to train on")
    add("--out", type=pathlib.Path, help="directory of the run")
    for settings, defaults in ((_CONFIG, Config), (_PRIOR, PriorConfig)):
        for name, how in settings.items():
            how = dict(how)
            option = how.pop("option", name.replace("_", "-"))
            dest = f"prior_{name}" if settings is _PRIOR else name
            # Omitted options stay out of the namespace, so only `Config` defines the defaults.
            how |= {"default": argparse.SUPPRESS, "shown_default": getattr(defaults, name)}
            if "choices" not in how:
                how["metavar"] = option.upper().replace("-", "_")
            add(f"--{option}", dest=dest, **how)
    add_evaluation(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--post-hoc",
        metavar="RUN",
        help="directory of a finished run with a standard prior: keep its encoder and decoder as "
        "they are and train the resampled prior alone",
    )
    group.add_argument(
        "--continue-from",
        metavar="RUN",
        help="directory of a run of the same model: start from its weights, with a learning-rate "
        "schedule of its own for --steps more steps and without KL warm-up",
    )
    add(
        "--config",
        type=pathlib.Path,
        metavar="FILE",
        help="config.json of a run: train it in its directory; in place of all options above",
    )
    add(
        "--strategy",
        choices=cluster.STRATEGIES,
        help="train on all devices of this machine, or on the workers that TF_CONFIG names "
        "(default: one device)",
    )
    add("--data-dir", help="where the data set is (default: $TFP_LARS_DATA_DIR)")
    add("--no-evaluation", action="store_true", help="train only")
    add("--quiet", action="store_true", help="show no progress bars")
    return parser


_NOT_CONFIG = {"config", "data_dir", "no_evaluation", "quiet", "strategy"}


def parse(arguments: Sequence[str] | None = None) -> tuple[argparse.Namespace, Config]:
    """Returns the options and the configuration that they describe; `args.out` is its directory."""
    parser = _parser()
    args = parser.parse_args(arguments)
    given = {name: value for name, value in vars(args).items() if value is not None}
    if args.config is not None:
        others = sorted(given.keys() - _NOT_CONFIG)
        if others:
            parser.error(f"argument --config: not allowed with {', '.join(others)}")
        args.out = args.config.parent
        if args.config.name != "config.json":
            parser.error(f"argument --config: must be named config.json, got {args.config.name}")
        return args, Config.from_json(files.read_json(args.config))
    missing = [f"--{name}" for name in ("dataset", "out") if name not in given]
    if missing:
        parser.error(f"the following arguments are required: {', '.join(missing)}")
    settings = vars(args)
    prior = {name: settings[f"prior_{name}"] for name in _PRIOR if f"prior_{name}" in settings}
    return args, Config(
        dataset=args.dataset,
        prior=PriorConfig(**prior),
        evaluation=evaluation_of(args),
        post_hoc=args.post_hoc is not None,
        base=args.post_hoc or args.continue_from,
        **{name: settings[name] for name in _CONFIG if name in settings},
    )


def check_base(config: Config) -> None:
    """Checks that the base run can provide the weights. Imports no TensorFlow.

    Raises:
      UserError: The base run has another configuration, or is not finished.
    """
    run = RunDirectory(config.base)
    found = run.config()
    option = "--post-hoc" if config.post_hoc else "--continue-from"
    names = ("dataset", "model", "num_latents", "prior", "post_hoc")
    if config.post_hoc:
        wanted = {name: getattr(config, name) for name in names}
        wanted |= {"prior": "standard", "post_hoc": False}
        there = {name: getattr(found, name) for name in names} | {"prior": found.prior.name}
    else:
        wanted, there = ({n: getattr(c, n) for n in names} for c in (config, found))
    wrong = [f"{k} is {there[k]}, expected {wanted[k]}" for k in names if there[k] != wanted[k]]
    if wrong:
        raise UserError(f"{option} {config.base} cannot be the base: {'; '.join(wrong)}.")
    step = run.last_step()
    if step is None:
        raise UserError(f"{config.base} holds no checkpoint yet: train it first.")
    if not run.is_trained(found):
        raise UserError(
            f"{option} {config.base} is at step {step} of {found.steps}: train it to its end."
        )


def main(arguments: Sequence[str] | None = None) -> None:
    args, config = parse(arguments)
    if config.base is not None:
        check_base(config)
    if args.strategy is not None:
        cluster.check(args.strategy, config)
    # The other workers of a cluster write nothing.
    chief = args.strategy != cluster.MULTI_WORKER or cluster.is_chief()
    command_line.require("tensorboard", *([] if args.no_evaluation else ["matplotlib"]))
    cores.share()
    command_line.import_tensorflow()
    from examples.vae import build, datasets, distributed, evaluation, runs, training

    strategy = None if args.strategy is None else distributed.make(args.strategy)
    base = None
    if config.base is not None:
        base = runs.load(config.base).model
        digest = build.networks_digest if config.post_hoc else build.weights_digest
        if config.base_weights not in (None, digest(base)):
            raise UserError(f"{config.base} has other weights than {args.config} expects.")
        config = dataclasses.replace(config, base_weights=digest(base))
    directory = RunDirectory(args.out)
    images = datasets.load(config.dataset, args.data_dir)
    with locks.held(directory.path) if chief else contextlib.nullcontext():
        if chief:
            print(f"{images.name}: {images.source}", flush=True)
            directory.claim(config, images.digest)
        if strategy is None:
            model = training.train(config, images, directory, base=base, progress=not args.quiet)
        else:
            distributed.train(
                config, images, directory, strategy, chief=chief, base=base, progress=not args.quiet
            )
            model = runs.load(directory.path).model if chief else None
        if chief and not args.no_evaluation:
            evaluation.evaluate(
                model,
                images,
                config,
                directory.path,
                evaluation=config.evaluation,
                command=command_line.as_typed(MODULE, arguments),
                training_seconds=directory.training_seconds,
                progress=not args.quiet,
            )


if __name__ == "__main__":
    command_line.run(main, interrupted=command_line.RESUMES)
