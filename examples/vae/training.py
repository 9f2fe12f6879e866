"""Trains one VAE: one data set, one architecture, one prior. Interrupted, it goes on where it was.

    python -m examples.train --dataset mnist --model vae --prior lars --steps 100000 --out runs/lars

The output directory holds `config.json`, `checkpoints/`, `tensorboard/`, and, when the training is
done, `metrics.json` and pictures (see `examples.evaluate`). The same command again goes on from the
last checkpoint; a run that was killed ends with the weights of one that was not.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from examples.common import cores
from examples.common.command_line import UserError, as_typed, positive, run, truncation, units
from examples.vae import datasets as data
from examples.vae import evaluation as evaluate
from examples.vae import models, priors
from examples.vae.build import Config, build, fingerprint, share_networks
from examples.vae.early_stopping import BestValidation
from examples.vae.run_directory import RunDirectory, explained, restore


class Keeper(keras.callbacks.Callback):
    """After every so many steps: a checkpoint and a line for TensorBoard. Stops at NaN."""

    def __init__(self, run: RunDirectory, manager: tf.train.CheckpointManager):
        super().__init__()
        self.run, self.manager = run, manager
        with explained(run.path):
            self.writer = tf.summary.create_file_writer(str(run.path / "tensorboard"))

    def on_train_batch_end(self, batch, logs=None):
        if not np.isfinite(logs["loss"]):
            step = int(self.model.optimizer.iterations)
            last = self.manager.latest_checkpoint
            raise UserError(
                f"the loss became {logs['loss']} at or shortly before step {step}; "
                f"{'the last good checkpoint is ' + last if last else 'no checkpoint was made'}. "
                "Try another --seed, or a larger --batch-size."
            )

    def on_epoch_end(self, epoch, logs=None):
        with explained(self.run.path):
            self.manager.save(checkpoint_number=int(self.model.optimizer.iterations))
            step = int(self.model.optimizer.iterations)
            with self.writer.as_default(step=step):
                for name, value in {**logs, **prior_scalars(self.model)}.items():
                    tf.summary.scalar(name, value)
                tf.summary.scalar("learning_rate", self.model.optimizer.learning_rate)
            self.writer.flush()


def prior_scalars(model: models.LatentVariableModel) -> dict[str, float]:
    """Z and the expected attempts, where something is resampled; of several, their means."""
    part = priors.resampled_part(model.prior)
    if part is None:
        return {}
    found = {"z": part.acceptance_rate, "attempts": part.expected_attempts}
    return {name: float(np.mean(value)) for name, value in found.items()}


class Progress(keras.callbacks.Callback):
    """One bar for the training, with the bound and Z; in a log, a line for each checkpoint."""

    def __init__(self, start: int, steps: int, every: int):
        super().__init__()
        self.start = start
        self.every = 1 if sys.stdout.isatty() else every
        self.bar = keras.utils.Progbar(
            steps, unit_name="step", stateful_metrics=["elbo", "kl", "recons", "z", "attempts"]
        )
        self.bar.update(start)

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations)
        if step % self.every and step < self.bar.target:
            return
        values = {k: logs[k] for k in ("elbo", "kl", "recons")} | prior_scalars(self.model)
        self.bar.update(step, list(values.items()), finalize=step >= self.bar.target)


def steps_per_call(start: int, stop: int, checkpoint_every: int, most: int = 50) -> tuple[int, int]:
    """How many steps to make for each call from Python, and between two checkpoints.

    Args:
      start: The first step.
      stop: The step after the last.
      checkpoint_every: Steps between checkpoints, as the user wants them.
      most: Steps for each call, at most; more do not pay.

    Returns:
      per_call: Divides the number of steps that are left, so that no call runs out of batches.
      every: A multiple of it, at most `checkpoint_every`.
    """
    every = min(checkpoint_every, stop)
    per_call = math.gcd(most, stop - start)
    if every < per_call:
        per_call = math.gcd(per_call, every)
    return per_call, every - every % per_call


def train(
    config: Config,
    images: data.Images,
    run: RunDirectory,
    *,
    base: models.LatentVariableModel | None = None,
    checkpoint_every: int = 1000,
    progress: bool = True,
) -> models.LatentVariableModel:
    """Trains, or goes on to train, the model of a configuration.

    Args:
      config: What to train.
      images: The data.
      run: Where to keep it; claimed for this configuration.
      base: Whose encoder and decoder to take, if `config.post_hoc`.
      checkpoint_every: Steps between checkpoints.
      progress: Whether to show a bar.

    Returns:
      model: After `config.steps` steps; for `static_mnist` as it was when the validation NLL was
        best.
    """
    tf.config.experimental.enable_op_determinism()
    model = build(config)
    if config.post_hoc:
        share_networks(base, model)
    manager = run.manager(model, "checkpoints")
    restore(manager)
    start = int(model.optimizer.iterations)
    model.steps_per_execution, every = steps_per_call(start, config.steps, checkpoint_every)
    callbacks = [Keeper(run, manager)]
    stopper = None
    if config.dataset == "static_mnist":
        stopper = BestValidation(run, images.validation, config)
        callbacks.insert(0, stopper)
    if progress:
        callbacks.append(Progress(start, config.steps, every))
    if start < config.steps and not (stopper and stopper.stopped):
        batches = data.training_batches(
            images, batch_size=config.batch_size, seed=config.seed, start=start, stop=config.steps
        )
        with explained(run.path):
            model.fit(
                batches,
                steps_per_epoch=every,
                epochs=math.ceil((config.steps - start) / every),
                callbacks=callbacks,
                shuffle=False,
                verbose=0,
            )
    if stopper:
        stopper.restore_best(model)
    return model


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.train",
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--dataset", required=True, choices=data.NAMES)
    add("--model", default="vae", choices=models.MODELS)
    add("--prior", default="lars", choices=priors.PRIORS)
    add(
        "--steps",
        type=positive,
        default=100_000,
        help="optimizer steps; the paper's are 10^7",
    )
    add("--out", required=True, help="directory of the run")
    add("--data-dir", default=os.environ.get("TFP_LARS_DATA_DIR"), help="where the data set is")
    add("--seed", type=int, default=0)
    add("--latents", type=positive, default=50, help="dimensions of each latent")
    add("--batch-size", type=positive, default=128)
    add(
        "--accept-units",
        type=units,
        help="hidden layers of a, as in 50-50-50 (default: 100-100; 20-20 for lars_dimensionwise, "
        "300-300 for output_vae)",
    )
    add("--T", type=truncation, default=100, help="truncation, 'inf' for none")
    add(
        "--S",
        type=positive,
        default=1024,
        help="proposals for each estimate of Z in training",
    )
    add("--decay", type=float, default=0.9, help="of the moving average of Z")
    add(
        "--post-hoc",
        metavar="RUN",
        help="directory of a finished run with a standard prior: keep its encoder and decoder as "
        "they are and train the resampled prior alone",
    )
    add("--components", type=positive, default=500, help="of mog and vamp")
    add("--checkpoint-every", type=positive, default=1000, help="steps between checkpoints")
    add(
        "--iwae-samples",
        type=positive,
        default=1000,
        help="for each image, in the evaluation",
    )
    add("--z-samples", type=positive, default=10**7, help="for Z, in the evaluation")
    add("--test-images", type=positive, help="for the evaluation, at even distances (all if None)")
    add("--no-evaluation", action="store_true", help="train only")
    add("--quiet", action="store_true", help="no progress bars")
    return parser.parse_args(arguments)


def config_of(args: argparse.Namespace, base: models.LatentVariableModel | None = None) -> Config:
    return Config(
        dataset=args.dataset,
        model=args.model,
        prior=priors.PriorConfig(
            name=args.prior,
            accept_units=args.accept_units or priors.default_accept_units(args.prior, args.model),
            T=args.T,
            num_samples=args.S,
            decay=args.decay,
            num_components=args.components,
            seed=args.seed,
        ),
        steps=args.steps,
        num_latents=args.latents,
        batch_size=args.batch_size,
        seed=args.seed,
        post_hoc=None if base is None else fingerprint(base),
    )


def load_base(args: argparse.Namespace) -> models.LatentVariableModel | None:
    """The model that `--post-hoc` names, if it can serve as one."""
    if args.post_hoc is None:
        return None
    if not args.prior.startswith("lars"):
        raise UserError(f"--post-hoc fits a resampled prior, not --prior {args.prior}: try lars.")
    base, config = RunDirectory(args.post_hoc).trained()
    wanted = {
        "dataset": args.dataset,
        "model": args.model,
        "num_latents": args.latents,
        "prior": "standard",
        "post_hoc": None,
    }
    found = {name: getattr(config, name) for name in wanted} | {"prior": config.prior.name}
    told = [f"{k} is {found[k]}, expected {wanted[k]}" for k in wanted if found[k] != wanted[k]]
    if told:
        raise UserError(f"--post-hoc {args.post_hoc} cannot serve: {'; '.join(told)}.")
    step = int(base.optimizer.iterations)
    # With early stopping the best weights are from some step before the last.
    if step < config.steps and config.dataset != "static_mnist":
        raise UserError(
            f"--post-hoc {args.post_hoc} is at step {step} of {config.steps}: train it to its end."
        )
    return base


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    cores.share()
    base = load_base(args)
    config, directory = config_of(args, base), RunDirectory(args.out)
    images = data.load(args.dataset, args.data_dir)
    print(f"{images.name}: {images.source}")
    directory.claim(config, images)
    model = train(
        config,
        images,
        directory,
        base=base,
        checkpoint_every=args.checkpoint_every,
        progress=not args.quiet,
    )
    if not args.no_evaluation:
        evaluate.evaluate(
            model,
            images,
            config,
            directory,
            iwae_samples=args.iwae_samples,
            z_samples=args.z_samples,
            command=as_typed("examples.train", arguments),
            test_images=args.test_images,
            progress=not args.quiet,
        )


if __name__ == "__main__":
    run(main)
