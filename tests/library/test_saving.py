"""`save` and `load`, and `.keras` files: distributions as JSON and weights."""

import collections
import dataclasses
import json
import os
import stat
import zipfile
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tests.processes import run_python
from tfp_lars import (
    AcceptanceNetwork,
    DistributionLayer,
    MovingAverage,
    Resampled,
    estimate_log_normalizer,
    load,
    proposals,
    save,
)

tfb = tfp.bijectors
tfd = tfp.distributions


@keras.saving.register_keras_serializable(package="test_saving")
class Registered(keras.Model):
    """A network of a user, with batch statistics."""

    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.norm = keras.layers.BatchNormalization()
        self.out = keras.layers.Dense(units)

    def logits(self, z):
        return keras.ops.sum(self.out(self.norm(z)), axis=-1)

    def call(self, z):
        return keras.ops.sigmoid(self.logits(z))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def sequential():
    return keras.Sequential(
        [keras.layers.Dense(4, "relu"), keras.layers.Dropout(0.5), keras.layers.Dense(1, "sigmoid")]
    )


def functional():
    z = keras.Input([2])
    h = keras.layers.Dense(4, "tanh")(z)
    return keras.Model(z, keras.layers.Dense(1)(keras.layers.Concatenate()([z, h])))


def normal(**kwargs):
    return tfd.MultivariateNormalDiag(tf.zeros(2), **kwargs)


def shared():
    """The same variable, bijector and network occur twice."""
    scale, network = tf.Variable([1.0, 1.2], name="scale"), AcceptanceNetwork((4,))
    inner = Resampled(tfd.MultivariateNormalDiag(tf.zeros(2), scale), network, T=5)
    return Resampled(tfb.Scale(scale)(inner), network, T=None)


DISTRIBUTIONS = {
    "acceptance network": lambda: Resampled(normal(), AcceptanceNetwork((4, 3), "relu")),
    "frozen": lambda: Resampled(normal(), AcceptanceNetwork((4,))).freeze(num_samples=500, seed=1),
    "fixed number": lambda: Resampled(normal(), AcceptanceNetwork((4,)), T=7, normalizer=-1.5),
    "sequential": lambda: Resampled(normal(), sequential()),
    "functional": lambda: Resampled(normal(), functional(), T=None, from_logits=True),
    "registered": lambda: Resampled(normal(), Registered(5)),
    "standard normal": lambda: Resampled(proposals.standard_normal(2), AcceptanceNetwork((4,))),
    "real_nvp": lambda: Resampled(proposals.real_nvp(2, 3, (5, 6)), AcceptanceNetwork((4,))),
    "flow alone": lambda: proposals.real_nvp(3, 2, (5,), dtype=tf.float64, activation="tanh"),
    "maf": lambda: Resampled(
        proposals.masked_autoregressive_flow(2, 2, (6,)), AcceptanceNetwork((4,))
    ),
    "mixture": lambda: proposals.gaussian_mixture(2, 3),
    "variables": lambda: Resampled(
        tfd.Independent(
            tfd.Normal(
                tf.Variable([0.1, 0.2]), tfp.util.TransformedVariable([1.0, 2.0], tfb.Exp())
            ),
            1,
        ),
        AcceptanceNetwork((4,)),
        normalizer=MovingAverage(32, 0.5, same_draws=True),
    ),
    "transformed": lambda: tfd.TransformedDistribution(
        tfd.Sample(tfd.StudentT(np.float32(5.0), 0.0, tf.Variable(2.0)), [2]),
        tfb.Chain([tfb.Shift(np.float32([1.0, -1.0])), tfb.Scale(tf.Variable([2.0, 0.5]))]),
    ),
    "shared": shared,
    "discrete": lambda: Resampled(
        tfd.Independent(tfd.Bernoulli(logits=tf.zeros(6), dtype=tf.int32), 1),
        AcceptanceNetwork((4,)),
    ),
    "batch": lambda: Resampled(tfd.Normal([0.0, 1.0], 1.0), AcceptanceNetwork((4,)), T=3),
    "float64": lambda: Resampled(
        proposals.standard_normal(2, dtype=tf.float64), AcceptanceNetwork((4,))
    ),
    "infinite": lambda: tfd.TruncatedNormal(0.0, 1.0, low=-1.0, high=float("inf")),
    "half": lambda: tfd.Normal(tf.Variable(0.5, dtype=tf.bfloat16), tf.constant(1.0, tf.bfloat16)),
}


def made(name):
    """Returns a distribution whose variables all differ from their initial values."""
    dist = DISTRIBUTIONS[name]()
    z = points(dist)
    dist.log_prob(z)  # updates averages
    rng = np.random.default_rng(0)
    for v in dist.trainable_variables:
        v.assign_add(tf.cast(rng.normal(0, 0.1, size=v.shape), v.dtype))
    return dist, z


def test_settings_of_an_average_are_kept(tmp_path):
    save(DISTRIBUTIONS["variables"](), tmp_path / "dist")
    average = load(tmp_path / "dist").normalizer
    assert (average.num_samples, average.decay, average.same_draws) == (32, 0.5, True)


def test_integers_of_numpy_are_saved_as_integers(tmp_path):
    dist = Resampled(
        tfd.Normal(0.0, 1.0), AcceptanceNetwork((3,)), T=np.int64(5), max_attempts=np.int32(70)
    )
    assert (dist.parameters["T"], type(dist.parameters["T"])) == (5, int)
    save(dist, tmp_path / "dist")
    loaded = load(tmp_path / "dist")
    assert (loaded.T, loaded.max_attempts) == (5, 70)


class Float(float):
    def __repr__(self):
        return f"Float({float(self)})"


NUMBERS = {
    "double": lambda: tfd.Normal(np.float64(0.1), np.float64(1.0)),
    "single": lambda: tfd.Normal(np.float32(0.1), np.float32(1.0)),
    "half": lambda: tfd.Normal(np.float16(0.1), np.float16(1.0)),
    "infinite": lambda: tfd.TruncatedNormal(0.0, 1.0, np.float64(-1.0), np.float64(np.inf)),
    "in a list": lambda: tfd.Sample(tfd.Normal(0.0, np.float64(1.0)), [np.int64(2)]),
    "bool and text": lambda: tfd.Normal(0.0, 1.0, np.bool_(True), name=np.str_("named")),
    "count": lambda: tfd.Independent(tfd.Normal([0.0, 1.0], 1.0), np.int64(1)),
    "subclass": lambda: tfd.TruncatedNormal(Float(0.0), Float(1.0), -1.0, Float(np.inf)),
    # Its events are integers, and its density has the type of `probs`, which TFP makes float32.
    "array": lambda: tfd.OneHotCategorical(probs=np.array([0.2, 0.8])),
    "with a network": lambda: Resampled(
        tfd.Normal(np.float64(0.1), np.float64(1.0)),
        AcceptanceNetwork((4,)),
        T=np.int64(5),
        normalizer=np.float64(-1.0),
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_type_of_numbers_is_kept(name, tmp_path):
    dist = NUMBERS[name]()
    save(dist, tmp_path / "dist")
    clone = DistributionLayer.from_config(DistributionLayer(dist).get_config())
    z = dist.sample(3, seed=1)
    for other in (load(tmp_path / "dist"), clone.distribution):
        assert (other.dtype, other.name) == (dist.dtype, dist.name)
        assert other.log_prob(z).dtype == dist.log_prob(z).dtype
    np.testing.assert_array_equal(load(tmp_path / "dist").log_prob(z), dist.log_prob(z))


def points(dist):
    shape = [5, *dist.batch_shape, *dist.event_shape]
    z = np.random.default_rng(1).normal(0, 0.3, size=shape)
    dtype = tf.as_dtype(dist.dtype)
    return tf.cast(z > 0, dtype) if dtype.is_integer else tf.cast(z, dtype)


def assert_same(dist, other, z):
    values = [d.variables for d in (dist, other)]
    assert [v.trainable for v in values[0]] == [v.trainable for v in values[1]]
    for old, new in zip(*values, strict=True):
        assert old is not new
        np.testing.assert_array_equal(old.numpy(), new.numpy())
    # With the same state, averages draw the same numbers.
    # TFP's bijectors have cached values of `z` for old weights.
    np.testing.assert_array_equal(*(d.log_prob(tf.identity(z)) for d in (dist, other)))
    assert (dist.dtype, dist.batch_shape, dist.event_shape, dist.name) == (
        other.dtype,
        other.batch_shape,
        other.event_shape,
        other.name,
    )


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_loaded_distribution_is_the_saved_one(name, tmp_path):
    dist, z = made(name)
    save(dist, tmp_path / "dist")
    assert_same(dist, load(tmp_path / "dist"), z)
    assert [p.name for p in tmp_path.iterdir()] == ["dist"]


def unlike_zero(d=2):
    """a(z) that is high only far from the center, so that its Z is small."""
    network = keras.Sequential([keras.layers.Dense(1)])
    network.build([None, d])
    network.set_weights([np.full([d, 1], 2.0, np.float32), np.full([1], -8.0, np.float32)])
    return network


ESTIMATES = {
    "plain": {"num_samples": 5000, "antithetic": False},
    "pairs": {"num_samples": 5000, "antithetic": True},
    "too few": {"num_samples": 20},  # has a warning
    "fitted": {"num_samples": 4096, "method": "importance"},
    "given": {
        "num_samples": 4096,
        "method": "importance",
        "importance_distribution": tfd.MultivariateNormalDiag([1.5, 1.5], [1.0, 1.0]),
    },
}


def assert_same_values(a, b):
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same_values(x, y)
    elif dataclasses.is_dataclass(a):
        assert_same_values(*([getattr(x, f.name) for f in dataclasses.fields(x)] for x in (a, b)))
    elif isinstance(a, tfd.Distribution):
        z, other = (d.sample(5, seed=tf.constant([1, 2])) for d in (a, b))
        np.testing.assert_array_equal(z, other)
        np.testing.assert_array_equal(*(d.log_prob(tf.identity(z)) for d in (a, b)))
    else:
        np.testing.assert_array_equal(a, b)
        assert a is None or np.asarray(a).dtype == np.asarray(b).dtype


@pytest.mark.filterwarnings("ignore:.*too few acceptances")
@pytest.mark.parametrize("name", ESTIMATES)
def test_estimate_is_loaded_with_all_its_fields(name, tmp_path):
    proposal = tfd.MultivariateNormalDiag(tf.zeros(2))
    dist = Resampled(proposal, unlike_zero(), T=20, from_logits=True)
    frozen = dist.freeze(seed=1, **ESTIMATES[name])
    save(frozen, tmp_path / "dist")
    model = functional_model(frozen)
    model.save(tmp_path / "model.keras")
    layer = keras.saving.load_model(tmp_path / "model.keras").layers[-1]
    for loaded in (load(tmp_path / "dist"), layer.distribution):
        assert_same_values(loaded.estimate, frozen.estimate)
        assert repr(loaded.estimate) == repr(frozen.estimate)
        for field in ("log_z", "stderr", "effective_samples"):
            assert isinstance(getattr(loaded.estimate, field), np.float64)
        for level in (0.5, 0.95):
            assert_same_values(loaded.estimate.interval(level), frozen.estimate.interval(level))
    # The estimate can be continued.
    more = [
        estimate_log_normalizer(
            dist,
            2048,
            method=e.method,
            antithetic=ESTIMATES[name].get("antithetic"),
            continue_from=e,
        )
        for e in (frozen.estimate, load(tmp_path / "dist").estimate)
    ]
    assert_same_values(*more)


def test_estimate_of_a_batch_and_of_a_member_is_loaded(tmp_path):
    dist = Resampled(tfd.Normal([0.0, 1.0], 1.0), AcceptanceNetwork((4,)), T=3)
    frozen = dist.freeze(num_samples=500, seed=1)
    for part in (frozen, frozen[1]):
        save(part, tmp_path / "dist")
        assert part.estimate is not None
        assert_same_values(load(tmp_path / "dist").estimate, part.estimate)


def test_importance_distribution_of_a_user_is_left_out(tmp_path):
    class Own(tfd.Normal):
        pass

    own = tfd.Sample(Own(tf.Variable(0.5), 1.5), [2])
    frozen = Resampled(normal(), AcceptanceNetwork((4,))).freeze(
        num_samples=2048, method="importance", importance_distribution=own, seed=1
    )
    save(frozen, tmp_path / "dist")
    estimate = load(tmp_path / "dist").estimate
    assert estimate.importance_distribution is None
    assert_same_values(estimate.interval(), frozen.estimate.interval())


def test_file_with_fewer_fields_of_the_estimate_loads(tmp_path):
    """The format of the first development versions."""
    frozen = Resampled(normal(), AcceptanceNetwork((4,))).freeze(num_samples=500, seed=1)
    save(frozen, tmp_path / "dist")

    def change(header):
        estimate = header["distribution"]["parameters"]["normalizer"]
        for key in set(estimate) - {"kind", "log_z", "stderr", "num_samples", "method"}:
            del estimate[key]
        del estimate["log_z"]["kind"], estimate["stderr"]["kind"]

    rewrite(tmp_path / "dist", change)
    loaded = load(tmp_path / "dist").estimate
    assert (loaded.log_z, loaded.stderr) == (frozen.estimate.log_z, frozen.estimate.stderr)
    assert (loaded.num_samples, loaded.method) == (500, "monte_carlo")
    assert loaded.num_values is None and loaded.state is None


def test_parts_that_occur_twice_stay_one(tmp_path):
    dist, _ = made("shared")
    save(dist, tmp_path / "dist")
    loaded = load(tmp_path / "dist")
    assert loaded.accept_fn is loaded.proposal.distribution.accept_fn
    assert loaded.proposal.bijector.scale is loaded.proposal.distribution.proposal.scale.diag
    assert len(loaded.variables) == len(dist.variables)


def test_loaded_distribution_trains(tmp_path):
    dist, z = made("real_nvp")
    save(dist, tmp_path / "dist")
    loaded = load(tmp_path / "dist")
    with tf.GradientTape() as tape:
        loss = -tf.reduce_mean(loaded.log_prob(z))
    assert all(g is not None for g in tape.gradient(loss, loaded.trainable_variables))


def test_file_loads_in_a_new_process(tmp_path):
    dist = Resampled(proposals.real_nvp(2, 2, (4,)), AcceptanceNetwork((4,)))
    frozen = dist.freeze(num_samples=1000, seed=1)
    save(frozen, tmp_path / "dist")
    z = np.float32([[0.1, 0.2], [0.3, -0.4]])
    code = f"""
        import tfp_lars
        print(tfp_lars.load({str(tmp_path / "dist")!r}).log_prob({z.tolist()!r}).numpy().tolist())
        """
    printed = json.loads(run_python(code).stdout)
    np.testing.assert_array_equal(np.float32(printed), frozen.log_prob(z))


# What cannot be described.


class Slope(tf.Module):
    def __init__(self):
        super().__init__()
        self.slope = tf.Variable([1.0, 2.0])

    def logits(self, z):
        return tf.reduce_sum(self.slope * z, axis=-1)


@keras.saving.register_keras_serializable(package="test_saving")
class Unconfigured(keras.Model):
    def __init__(self, out):
        super().__init__()
        self.out = out

    def call(self, z):
        return self.out(z)


def with_attribute():
    dist = normal()
    dist.extra = tf.Variable(1.0, name="extra")
    return dist


class Subclass(tfd.Normal):
    pass


def with_shared_trunk():
    trunk = keras.layers.Dense(4, name="trunk")

    def network():
        return keras.Sequential([keras.Input([2]), trunk, keras.layers.Dense(1, "sigmoid")])

    return Resampled(Resampled(normal(), network(), T=5), network(), T=5)


def with_constraint():
    scale = tf.Variable([1.0, 2.0], constraint=lambda x: tf.maximum(x, 0.1), name="scale")
    return normal(scale_diag=scale)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Resampled(normal(), lambda z: tf.sigmoid(z[..., 0])),
            "a function .*accept_fn.*Checkpoint",
        ),
        (lambda: Resampled(normal(), Slope()), "a Slope .*accept_fn.*tf.train.Checkpoint"),
        (
            lambda: Resampled(normal(), tf_keras.Sequential([tf_keras.layers.Dense(1, "sigmoid")])),
            "a Sequential",
        ),
        (
            lambda: Resampled(normal(), Unconfigured(keras.layers.Dense(1, "sigmoid"))),
            "(?s)has no configuration.*register_keras_serializable",
        ),
        (lambda: proposals.real_nvp(2, activation=lambda x: x), "activation .* cannot be saved"),
        (lambda: Subclass(0.0, 1.0), "a Subclass"),
        (with_attribute, "1 variables that are not among its constructor arguments.*extra"),
        (
            lambda: tfd.TransformedDistribution(
                normal(), tfb.Inline(tf.identity, tf.identity, forward_min_event_ndims=0)
            ),
            "a function|a Inline",
        ),
        (
            with_shared_trunk,
            "kernel.* two parts .*proposal.accept_fn.0 and .*accept_fn.0",
        ),
        (with_constraint, "'scale:0' .dist.scale_diag. has a constraint.*TransformedVariable"),
    ],
)
def test_what_cannot_be_described_is_an_error_with_the_remedy(make, message, tmp_path):
    dist = make()
    with pytest.raises(ValueError, match=message):
        save(dist, tmp_path / "dist")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotImplementedError, match=message):
        DistributionLayer(dist).get_config()


class Model(NamedTuple):
    b: tfd.Distribution
    a: tfd.Distribution


def parts():
    return {"b": tfd.Normal(0.0, 1.0), "a": tfd.Normal(5.0, 1.0)}


@pytest.mark.parametrize("make", [dict, collections.OrderedDict])
def test_type_and_order_of_a_dictionary_are_kept(make, tmp_path):
    dist = tfd.JointDistributionNamed(make(parts()))
    save(dist, tmp_path / "dist")
    loaded = load(tmp_path / "dist")
    assert type(loaded.model) is type(dist.model)
    assert list(loaded.model) == list(dist.model)
    assert loaded.sample(seed=[1, 2]) == dist.sample(seed=[1, 2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: tfd.JointDistributionNamed(Model(**parts())),
            r"A Model \(dist.model\).*Pass a dictionary",
        ),
        (
            lambda: tfd.Normal(0.0, 1.0, validate_args={1: True}),
            r"The key 1 in a dictionary \(dist.validate_args\).*strings",
        ),
    ],
)
def test_containers_that_would_change_are_refused(make, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        save(make(), tmp_path / "dist")


def test_other_objects_are_refused(tmp_path):
    with pytest.raises(TypeError, match="`dist` must be a TFP distribution"):
        save(AcceptanceNetwork(), tmp_path / "dist")


# Files that are not what they should be.


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "dist"
    save(Resampled(normal(), AcceptanceNetwork((4,))), path)
    return path


def rewrite(path, change):
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(content["distribution.json"])
    change(header)
    content["distribution.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_truncated_file_is_refused(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match="is not a distribution .* or it is damaged"):
        load(saved)


def test_changed_weight_is_found(tmp_path):
    dist = normal(scale_diag=tf.Variable([1.25, 1.5]))
    save(dist, tmp_path / "dist")
    content = (tmp_path / "dist").read_bytes()
    old, new = (np.float32([1.25, x]).tobytes() for x in (1.5, 1.75))
    assert content.count(old) == 1
    (tmp_path / "dist").write_bytes(content.replace(old, new))
    with pytest.raises(ValueError, match="damaged"):
        load(tmp_path / "dist")


def test_other_files_are_refused(saved, tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="is not a distribution that `tfp_lars.save` has written"):
        load(tmp_path / "other.npz")
    rewrite(saved, lambda header: header.update(format="other"))
    with pytest.raises(ValueError, match="is not a distribution that `tfp_lars.save` has written"):
        load(saved)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing")


def test_newer_file_is_refused(saved):
    rewrite(saved, lambda header: header.update(version=2))
    with pytest.raises(ValueError, match="version 2 of the file format.*Upgrade tfp_lars"):
        load(saved)


def test_array_of_another_shape_is_refused(saved):
    def change(header):
        weights = header["distribution"]["parameters"]["accept_fn"]["weights"]
        weights[0]["array"] = weights[1]["array"]

    rewrite(saved, change)
    with pytest.raises(ValueError, match="cannot be rebuilt"):
        load(saved)


def test_interrupted_save_keeps_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(normal(), saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["dist"]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
def test_file_has_the_mode_of_any_new_file(umask, tmp_path):
    before = os.umask(umask)
    try:
        save(normal(), tmp_path / "dist")
        open(tmp_path / "other", "w").close()
        assert mode(tmp_path / "dist") == mode(tmp_path / "other") == 0o666 & ~umask
        for path in (tmp_path / "dist", tmp_path / "other"):
            path.chmod(0o640)
        save(normal(), tmp_path / "dist")
        open(tmp_path / "other", "w").close()
        assert mode(tmp_path / "dist") == mode(tmp_path / "other") == 0o640
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name == "nt", reason="Windows lets few users make links")
def test_target_of_a_symbolic_link_is_replaced(tmp_path):
    (tmp_path / "shared").mkdir()
    link, target = tmp_path / "link", tmp_path / "shared" / "dist"
    link.symlink_to("shared/dist")
    for x in (1.0, 2.0):  # at first the target is missing
        save(tfd.Normal(x, 1.0), link)
        assert link.is_symlink() and float(load(target).loc) == x
    assert [p.name for p in target.parent.iterdir()] == ["dist"]


def test_nothing_is_left_where_the_file_cannot_be_written(tmp_path):
    (tmp_path / "dist" / "inner").mkdir(parents=True)
    with pytest.raises(OSError, match="dist"):
        save(normal(), tmp_path / "dist")
    assert [p.name for p in tmp_path.iterdir()] == ["dist"]
    with pytest.raises(FileNotFoundError):
        save(normal(), tmp_path / "missing" / "dist")


# Keras models.


def functional_model(dist):
    z = keras.Input(dist.event_shape)
    layer = DistributionLayer(dist)
    return keras.Model(z, layer(z))


@pytest.mark.parametrize(
    "name",
    ["acceptance network", "frozen", "registered", "real_nvp", "maf", "mixture", "variables"],
)
def test_functional_model_is_restored_from_its_file(name, tmp_path):
    dist, z = made(name)
    model = functional_model(dist)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_same(dist, loaded.layers[-1].distribution, z)


def test_model_file_loads_in_a_new_process(tmp_path):
    dist, _ = made("acceptance network")
    model = functional_model(dist.freeze(num_samples=1000, seed=1))
    model.save(tmp_path / "model.keras")
    z = np.float32([[0.1, 0.2], [0.3, -0.4]])
    code = f"""
        import keras, tfp_lars, numpy as np
        model = keras.saving.load_model({str(tmp_path / "model.keras")!r})
        print(np.array(model(np.float32({z.tolist()!r}))).tolist())
        """
    printed = json.loads(run_python(code).stdout)
    np.testing.assert_array_equal(np.float32(printed), model(z))


def test_layer_configuration_is_json_without_the_weights_of_networks():
    dist, _ = made("variables")
    layer = DistributionLayer(dist, name="prior")
    config = json.loads(json.dumps(layer.get_config()))
    assert "weights" not in config["distribution"]["parameters"]["accept_fn"]
    clone = DistributionLayer.from_config(config)
    assert clone.name == "prior"
    # Parameters are part of the configuration, weights of networks are not.
    variables = [d.proposal.variables for d in (dist, clone.distribution)]
    for old, new in zip(*variables, strict=True):
        np.testing.assert_array_equal(old, new)
    kernels = [d.accept_fn.variables[0].numpy() for d in (dist, clone.distribution)]
    assert np.any(kernels[0] != kernels[1])


def layer_with(network):
    return DistributionLayer(Resampled(normal(), network, T=5, normalizer=-1.0))


def two_layers(dist):
    return [DistributionLayer(dist), DistributionLayer(dist)]


def with_one_network(make):
    network = make()
    return [layer_with(network), layer_with(network)]


def with_one_variable():
    scale = tfp.util.TransformedVariable([1.0, 2.0], tfb.Exp())
    return [DistributionLayer(normal(scale_diag=scale)) for _ in range(2)]


def with_one_sublayer():
    trunk = keras.layers.Dense(4)
    heads = [keras.layers.Dense(1, "sigmoid") for _ in range(2)]
    return [layer_with(keras.Sequential([keras.Input([2]), trunk, head])) for head in heads]


def with_a_network_of_the_model():
    network = functional()
    return [DistributionLayer(Resampled(normal(), network, T=5, from_logits=True)), network]


SHARED_LAYERS = {
    "network": lambda: with_one_network(lambda: AcceptanceNetwork((4,))),
    "Sequential": lambda: with_one_network(sequential),
    "distribution": lambda: two_layers(
        Resampled(normal(scale_diag=tf.Variable([1.0, 2.0])), AcceptanceNetwork((4,)), T=5)
    ),
    "flow": lambda: two_layers(proposals.masked_autoregressive_flow(2, 2, (6,))),
    "variable": with_one_variable,
    "sublayer": with_one_sublayer,
    "network of the model": with_a_network_of_the_model,
}


@pytest.mark.parametrize("name", SHARED_LAYERS)
def test_layers_of_a_loaded_model_share_what_they_shared(name, tmp_path):
    z = keras.Input([2])
    model = keras.Model(z, [layer(z) for layer in SHARED_LAYERS[name]()])
    points = np.float32([[0.1, 0.2], [0.3, -0.4]])
    model(points)  # updates averages
    for v in model.trainable_variables:
        v.assign(np.array(v) + 0.1)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(loaded.variables) == len(model.variables)
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    for m in (model, loaded):  # the first variable is shared
        m.trainable_variables[0].assign(np.array(m.trainable_variables[0]) + 0.1)
    for old, new in zip(*(m(points, training=False) for m in (model, loaded)), strict=True):
        np.testing.assert_array_equal(old, new)


def test_configuration_has_ids_only_in_a_file(tmp_path):
    """`model.to_json()` is the same in each process, and a layer can be cloned."""
    dist = Resampled(normal(scale_diag=tf.Variable([1.0, 2.0])), AcceptanceNetwork((4,)))
    model = functional_model(dist)
    assert "shared_object_id" not in model.to_json()
    clone = keras.models.clone_model(model)
    assert not {id(v) for v in clone.variables} & {id(v) for v in model.variables}
    model.save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        assert b"shared_object_id" in archive.read("config.json")
