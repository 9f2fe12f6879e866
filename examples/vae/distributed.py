"""Training on several devices or machines, in place of Keras `fit`.

Every worker reads the same batches, and each replica takes its part of each batch. The gradients
are added up over replicas, and each replica applies the sum to its own copy of the weights. The
noise of an image does not depend on the number of replicas, and all replicas draw the same
proposals for Z. A training therefore equals one of a single process, except for rounding.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator

import tensorflow as tf

from examples.common.command_line import UserError, early_log_filtered
from examples.common.variables import tf_variable
from examples.vae import batches, cluster, datasets, models
from examples.vae.config import Config
from examples.vae.run_directory import RunDirectory
from examples.vae.training import (
    Keeper,
    Progress,
    check_loss,
    make_deterministic,
    restored,
    steps_per_call,
)

# What a collective operation raises if another worker is gone.
_LOST_WORKER = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)


def make(name: str) -> tf.distribute.Strategy:
    """Returns a strategy. Call it before any computation: `multi_worker` connects the workers.

    Args:
      name: `mirrored` for all GPUs of this machine, or all logical CPUs if there is no GPU;
        `multi_worker` for the workers of `TF_CONFIG`.
    """
    if name == cluster.MULTI_WORKER:
        with early_log_filtered():
            return tf.distribute.MultiWorkerMirroredStrategy()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def train(
    config: Config,
    images: datasets.Images,
    run: RunDirectory,
    strategy: tf.distribute.Strategy,
    *,
    chief: bool = True,
    base: models.LatentVariableModel | None = None,
    progress: bool = True,
) -> models.LatentVariableModel:
    """Trains the model of a configuration. Resumes from the last checkpoint if there is one.

    All workers make the same call.

    Args:
      config: Configuration of the run. The batch size is that of all replicas together.
      images: Data set.
      run: Directory of the run, which all workers share. The chief has claimed it.
      strategy: Result of `make`.
      chief: Whether this process writes checkpoints and shows the progress.
      base: Model to copy weights from, if `config.base` is set.
      progress: Whether the chief shows a progress bar.

    Returns:
      model: Model after `config.steps` steps, with the variables of the strategy.

    Raises:
      UserError: A worker is lost, the workers do not agree, or the batch cannot be divided.
    """
    replicas = strategy.num_replicas_in_sync
    if config.batch_size % replicas:
        raise UserError(
            f"--batch-size {config.batch_size} cannot be divided among {replicas} replicas: choose "
            f"a multiple of {replicas}."
        )
    make_deterministic()
    with _lost_workers_explained(strategy):
        with strategy.scope():
            model, manager = restored(config, run, base)
        start = model.num_steps
        check_agreement(strategy, config, images, start)
        per_call, every = steps_per_call(start, config.steps, config.checkpoint_every)
        data = batches.training_batches(
            images, batch_size=config.batch_size, seed=config.seed, start=start, stop=config.steps
        )
        step_fn = _steps(strategy, model, iter(data), per_call)
        callbacks = [Keeper(run, manager)] if chief else []
        if chief and progress:
            callbacks.append(Progress(start, config.steps, every))
        for callback in callbacks:
            callback.set_model(model)
        for step in range(start + per_call, config.steps + 1, per_call):
            logs = {name: float(value) for name, value in step_fn().items()}
            check_loss(logs["loss"], step, manager)
            for callback in callbacks:
                callback.on_train_batch_end(step, logs)
                if (step - start) % every == 0 or step == config.steps:
                    callback.on_epoch_end(0, logs)
    return model


def _steps(strategy, model, iterator, count):
    """Returns a function that takes `count` steps and returns the means of their losses."""

    def body(i, total):
        losses = strategy.run(_step_of_replica, [model, next(iterator)])
        return i + 1, {
            name: total[name] + strategy.experimental_local_results(value)[0] / count
            for name, value in losses.items()
        }

    @tf.function(autograph=False)
    def steps():
        zeros = {name: tf.zeros([]) for name in ("loss", "elbo", "kl", "recons")}
        return tf.while_loop(
            lambda i, _: i < count, body, [tf.constant(0), zeros], parallel_iterations=1
        )[1]

    return steps


def _step_of_replica(model: models.LatentVariableModel, batch: tf.Tensor) -> models.Terms:
    """Takes a step with the part of a batch that belongs to this replica.

    Keras would clip the gradients of each replica before it adds them up. Here they are added up
    first, so that the sum is clipped, as on a single replica.

    Args:
      model: Model with mirrored variables.
      batch: Images for all replicas, `[N, 28, 28]`.

    Returns:
      losses: Means over the whole batch.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    size = batch.shape[0] // replicas
    first = context.replica_id_in_sync_group * size
    optimizer, variables = model.optimizer, model.trainable_variables
    with tf.GradientTape() as tape:
        losses = model.losses(model(batch[first : first + size], training=True))
        loss = losses["loss"] / replicas
    gradients = tape.gradient(loss, [tf_variable(v) for v in variables])
    pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
    gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, [g for g, _ in pairs])
    if model.schedule.clip_norm is not None:
        gradients, _ = tf.clip_by_global_norm(gradients, model.schedule.clip_norm)
    rate = optimizer.learning_rate
    for gradient, (_, variable) in zip(gradients, pairs, strict=True):
        optimizer.update_step(gradient, variable, rate)
    tf_variable(optimizer.iterations).assign_add(1)
    return context.all_reduce(tf.distribute.ReduceOp.MEAN, losses)


def check_agreement(
    strategy: tf.distribute.Strategy, config: Config, images: datasets.Images, start: int
) -> None:
    """Checks that all workers have the same options, images and checkpoint.

    Args:
      strategy: Result of `make`.
      config: Configuration of the run.
      images: Data set.
      start: Step of the checkpoint, 0 if there is none.

    Raises:
      UserError: They differ.
    """
    text = json.dumps([config.identity(), images.digest], sort_keys=True)
    digest = int(hashlib.md5(text.encode()).hexdigest()[:15], 16)

    @tf.function(autograph=False)
    def gather():
        def of_replica():
            mine = tf.constant([[start, digest]], tf.int64)
            return tf.distribute.get_replica_context().all_gather(mine, axis=0)

        return strategy.experimental_local_results(strategy.run(of_replica))[0]

    steps, digests = gather().numpy().T
    if len(set(digests)) > 1:
        raise UserError("the workers have different options or images: start all of them alike.")
    if len(set(steps)) > 1:
        raise UserError(
            f"the workers found checkpoints of the steps {', '.join(map(str, steps))}: --out must "
            "be a directory that all workers share."
        )


@contextlib.contextmanager
def _lost_workers_explained(strategy: tf.distribute.Strategy) -> Iterator[None]:
    try:
        yield
    except _LOST_WORKER as error:
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            raise
        raise UserError(
            f"lost a worker, or the connection to it ({type(error).__name__}). Start the same "
            "command on all workers again: it resumes from the last checkpoint."
        ) from error
