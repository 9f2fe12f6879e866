"""Batches of images for training and for evaluation."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from examples.vae.datasets import Images

# The second word of the seeds in `training_batches` starts here. The offset avoids the small
# numbers that a training loop may combine with the same first word.
_FIRST_STREAM = 0x6C617273 << 30


def training_batches(
    images: Images, *, batch_size: int, seed: int, start: int, stop: int
) -> tf.data.Dataset:
    """Returns the batches of training steps `start` to `stop - 1`.

    Each epoch is a fresh permutation of the training images, and a batch may run from one
    epoch into the next. The batch of step `t` depends only on `seed` and `t`, so a resumed run
    uses the same batches as an uninterrupted one.

    Args:
      images: Data set from `datasets.load`.
      batch_size: Number of images in each batch.
      seed: Seed for the order and the binarization, a Python `int` of at most 64 bits.
      start: First step, at least 0.
      stop: Step after the last one.

    Returns:
      batches: Data set of `float32` tensors `[batch_size, 28, 28]`, 0 or 1.
    """
    if batch_size < 1 or not 0 <= start <= stop:
        raise ValueError(
            f"`batch_size` is {batch_size}, `start` {start} and `stop` {stop}; "
            "expected 1 <= batch_size and 0 <= start <= stop."
        )
    num_images = len(images.train)
    first_epoch, num_used = divmod(start * batch_size, num_images)
    end_epoch = -(-stop * batch_size // num_images)  # rounded up
    with tf.device("CPU:0"):  # tf.data runs on the CPU; captured tensors stay out of the graph
        pixels = tf.constant(images.train)
        seed = tf.constant(seed, tf.int64)

    def order(epoch):
        # Even streams order the images, odd ones draw their pixels.
        indices = tf.random.experimental.stateless_shuffle(
            tf.range(num_images), seed=[seed, _FIRST_STREAM + 2 * epoch], alg="philox"
        )
        return indices[tf.where(epoch == first_epoch, num_used, 0) :]

    def batch(step, indices):
        gray = tf.cast(tf.gather(pixels, indices), tf.float32)
        if not images.dynamic:
            return gray / 255.0
        # Random bits dominate the cost. With 16 bits per pixel, the probability of white is
        # within 2**-16 of k / 255, and exact for black and white pixels.
        bits = tf.random.stateless_uniform(
            [-(-batch_size * 28 * 28 // 2)],
            seed=[seed, _FIRST_STREAM + 2 * step + 1],
            minval=None,
            maxval=None,
            dtype=tf.int32,
            alg="philox",
        )
        levels = tf.reshape(tf.bitcast(bits, tf.uint16), [batch_size, 28, 28])
        return tf.cast(tf.cast(levels, tf.float32) < gray * (65_536.0 / 255.0), tf.float32)

    steps = tf.data.Dataset.range(start, stop)
    # One permutation per epoch, split into batches, is cheaper than shuffling index by index.
    indices = tf.data.Dataset.range(first_epoch, end_epoch).map(order)
    indices = indices.prefetch(1).rebatch(batch_size, drop_remainder=True)
    batches = tf.data.Dataset.zip(steps, indices).map(batch, num_parallel_calls=2)
    batches = batches.apply(tf.data.experimental.assert_cardinality(stop - start))
    return untuned(batches.prefetch(8))


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the data set without autotuning.

    The tuning thread can delay the end of `fit` by seconds.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def evaluation_batches(pixels: np.ndarray, batch_size: int) -> tf.data.Dataset:
    """Returns batches of binary images, in order and each image once.

    Args:
      pixels: `uint8`, `[N, 28, 28]`, 0 or 255: `Images.validation` or `Images.test`.
      batch_size: Number of images in each batch. The last batch may have fewer.

    Returns:
      batches: Data set of `float32` tensors `[b, 28, 28]`, 0 or 1.
    """
    if not np.all((pixels == 0) | (pixels == 255)):
        raise ValueError("`pixels` has gray levels; expected the values 0 and 255 alone.")
    with tf.device("CPU:0"):
        dataset = tf.data.Dataset.from_tensor_slices(pixels)
    return dataset.batch(batch_size).map(lambda x: tf.cast(x, tf.float32) / 255.0).prefetch(2)
