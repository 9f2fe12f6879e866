"""Files of unknown origin: loading runs no code of theirs and imports nothing that they name."""

import codecs
import copy
import io
import json
import marshal
import pickle
import sys
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import AcceptanceNetwork, DistributionLayer, Resampled, load, proposals, save

tfd = tfp.distributions


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """Modules that leave a file if they are imported, or if one of their functions is called."""
    folder, sprung = tmp_path / "modules", tmp_path / "sprung"
    code = f"""
import keras

def run(*args, **kwargs):
    open({str(sprung)!r}, "w").close()

class Trap(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        run()

run()
"""
    for name in ("trap_module", "keras_hub"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    yield sprung
    imported = {"trap_module", "keras_hub"} & set(sys.modules)
    for name in imported:
        del sys.modules[name]
    assert not imported and not sprung.exists()


def named(module, name, config=None, **more):
    return {"module": module, "class_name": name, "config": config or {}, **more}


def function(module, name):
    return named(module, "function", name, registered_name=name)


def stored_lambda():
    layer = keras.layers.Lambda(lambda z: z)
    return keras.saving.serialize_keras_object(layer)


def with_activation(activation):
    config = keras.saving.serialize_keras_object(AcceptanceNetwork((4,)))
    config["config"]["activation"] = activation
    return config


def dense(**arguments):
    config = keras.saving.serialize_keras_object(keras.Sequential([keras.layers.Dense(1)]))
    (layer,) = config["config"]["layers"]
    layer["config"].update(arguments)
    return config


def with_registered_name(class_name):
    """Keras reads these two special names before it looks for a registered class."""
    network = keras.saving.serialize_keras_object(AcceptanceNetwork((4,)))
    return named("builtins", class_name, registered_name=network["registered_name"])


def sequential_of(layer):
    config = dense()
    config["config"]["layers"] = [layer]
    return config


@keras.saving.register_keras_serializable(package="test_hostile_files")
class RegisteredLookup(keras.layers.StringLookup):
    """Inherits the reading of files."""


HOSTILE_NETWORKS = {
    "other module": lambda: named("trap_module", "Trap"),
    "registered name": lambda: named("trap_module", "Trap", registered_name="trap_module>Trap"),
    "without module": lambda: {"class_name": "Trap", "config": {}},
    "Keras package": lambda: named("keras_hub", "Trap"),
    "module of Keras": lambda: named("keras.src.backend.jax.layer", "JaxLayer"),
    "private base of a layer that reads files": lambda: named(
        "keras.src.layers.preprocessing.index_lookup", "IndexLookup"
    ),
    "lambda": lambda: sequential_of(stored_lambda()),
    "lambda by another name": lambda: sequential_of({**stored_lambda(), "module": "keras"}),
    "Lambda of a function": lambda: sequential_of(
        named(
            "keras.layers",
            "Lambda",
            {"function": function("keras.utils", "get_file"), "arguments": {"origin": "x"}},
        )
    ),
    "SavedModel": lambda: named("keras.layers", "TFSMLayer", {"filepath": "model"}),
    "torch": lambda: named("keras.layers", "TorchModuleWrapper", {"module": "x"}),
    "vocabulary": lambda: sequential_of(
        named("keras.layers", "StringLookup", {"vocabulary": "/etc/hostname"})
    ),
    "function of a module": lambda: with_activation(function("trap_module", "run")),
    "function with the name of an activation": lambda: with_activation(
        function("trap_module", "relu")
    ),
    "function of Keras": lambda: with_activation(function("keras.models", "load_model")),
    "builtin": lambda: with_activation(function("builtins", "eval")),
    "helper of Keras": lambda: with_activation(function("keras.activations", "deserialize")),
    "nested initializer": lambda: dense(kernel_initializer=named("trap_module", "Trap")),
    "nested bias": lambda: dense(bias_regularizer={"a": [named("trap_module", "Trap")]}),
    "type specification": lambda: named(
        "trap_module", "__typespec__", [], spec_name="Trap", registered_name=None
    ),
    "optimizer": lambda: named("keras.optimizers", "Adam"),
    "lambda with the name of a registered class": lambda: with_registered_name("__lambda__"),
    "type with the name of a registered class": lambda: with_registered_name("__typespec__"),
    "layer with the name of a registered class": lambda: with_registered_name("Lambda"),
    "layer of Keras with the name of a registered class": lambda: sequential_of(
        {**stored_lambda(), "registered_name": "tfp_lars>AcceptanceNetwork"}
    ),
    "registered class that reads files": lambda: sequential_of(
        named(
            __name__,
            "RegisteredLookup",
            {"vocabulary": "/etc/hostname"},
            registered_name="test_hostile_files>RegisteredLookup",
        )
    ),
    "function with two names": lambda: dense(
        kernel_initializer={**function("keras.activations", "relu"), "registered_name": "Zeros"}
    ),
    "class as a function": lambda: with_activation(
        function("builtins", "tfp_lars>AcceptanceNetwork")
    ),
}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "dist"
    save(Resampled(proposals.real_nvp(2, 1, (4,)), AcceptanceNetwork((4,))), path)
    return path


def rewrite(path, change):
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    change(content)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)


def with_parameters(change, name="distribution.json", find=lambda header: header["distribution"]):
    """Returns a function for `rewrite` that changes the parameters of the distribution."""

    def edit(content):
        header = json.loads(content[name])
        change(find(header)["parameters"])
        content[name] = json.dumps(header).encode()

    return edit


@pytest.mark.parametrize("name", HOSTILE_NETWORKS)
def test_hostile_network_is_refused(name, saved, trap):
    def change(parameters):
        parameters["accept_fn"].update(config=HOSTILE_NETWORKS[name](), weights=[])

    rewrite(saved, with_parameters(change))
    before = set(sys.modules)
    with pytest.raises(ValueError, match="The network names"):
        load(saved)
    assert not {m for m in set(sys.modules) - before if m.startswith("keras")}


def test_hostile_network_is_refused_also_without_the_safe_mode_of_keras(saved, trap, monkeypatch):
    """A user may have enabled unsafe loading for other files."""
    from keras.src.saving import serialization_lib

    def change(parameters):
        parameters["accept_fn"].update(config=sequential_of(stored_lambda()), weights=[])

    rewrite(saved, with_parameters(change))
    monkeypatch.setattr(serialization_lib, "in_safe_mode", lambda: False)
    with pytest.raises(ValueError, match="The network names 'keras.layers.Lambda'"):
        load(saved)


# Layers without a module. A model of Keras reads them as those of Keras 2, in which any class of
# `keras.layers` could be named, whatever `registered_name` is.


@pytest.fixture
def unsafe():
    """The setting of a process that loads stored code from other files."""
    from keras.src.saving import serialization_lib

    with serialization_lib.SafeModeScope(True):  # restores the setting
        keras.config.enable_unsafe_deserialization()
        yield


def old_lambda(path):
    """Returns a layer with code that leaves a file."""
    function = eval(f"lambda x: (__import__('builtins').open({str(path)!r}, 'w').close(), x)[1]")
    code = codecs.encode(marshal.dumps(function.__code__), "base64").decode()
    return "Lambda", {"function": [code, None, None]}


OLD_LAYERS = {
    "code": old_lambda,
    "inline vocabulary": lambda path: ("StringLookup", {"vocabulary": ["a", "b"]}),
    "SavedModel": lambda path: ("TFSMLayer", {"filepath": str(path)}),
}


def old_layer(name, path):
    class_name, config = OLD_LAYERS[name](path)
    return {
        "class_name": class_name,
        "registered_name": "tfp_lars>AcceptanceNetwork",
        "config": {"name": "s", **config},
    }


def in_sequential(name, path):
    network = keras.Sequential([keras.Input([2]), keras.layers.Dense(1, "sigmoid")])
    config = keras.saving.serialize_keras_object(network)
    config["config"]["layers"].insert(1, old_layer(name, path))
    return config


def in_functional(name, path):
    z = keras.Input([2])
    network = keras.Model(z, keras.layers.Dense(1, "sigmoid")(keras.layers.Identity(name="s")(z)))
    config = keras.saving.serialize_keras_object(network)
    layers = config["config"]["layers"]
    nodes = layers[1]["inbound_nodes"]
    layers[1] = {**old_layer(name, path), "name": "s", "inbound_nodes": nodes}
    return config


old_layers = pytest.mark.parametrize("name", OLD_LAYERS)
containers = pytest.mark.parametrize("container", [in_sequential, in_functional])


@old_layers
@containers
def test_old_layer_is_refused(name, container, saved, trap, unsafe):
    def change(parameters):
        parameters["accept_fn"].update(config=container(name, trap), weights=[])

    rewrite(saved, with_parameters(change))
    with pytest.raises(ValueError, match=f"The network names '{OLD_LAYERS[name](trap)[0]}'"):
        load(saved)


@containers
def test_old_layer_is_refused_in_the_safe_mode_too(container, saved, trap):
    """The safe mode of Keras does not keep vocabularies away."""

    def change(parameters):
        parameters["accept_fn"].update(config=container("inline vocabulary", trap), weights=[])

    rewrite(saved, with_parameters(change))
    with pytest.raises(ValueError, match="The network names 'StringLookup'"):
        load(saved)


@old_layers
@containers
def test_model_with_an_old_layer_in_a_network_is_refused(name, container, model_file, trap, unsafe):
    def change(layer):
        parameters = layer["config"]["distribution"]["parameters"]
        parameters["accept_fn"]["config"] = container(name, trap)

    rewrite(model_file, in_layer(change))
    with pytest.raises(ValueError, match="The network names"):
        keras.saving.load_model(model_file)


@containers
def test_old_layers_work(container, tmp_path, unsafe):
    """Keras alone would run the code."""
    keras.saving.deserialize_keras_object(container("code", tmp_path / "sprung"))
    assert (tmp_path / "sprung").exists()


def test_compilation_of_a_network_is_not_read(saved, trap):
    def change(parameters):
        config = parameters["accept_fn"]["config"]
        config["compile_config"] = {"optimizer": named("trap_module", "Trap")}

    rewrite(saved, with_parameters(change))
    load(saved)


def test_compiled_networks_are_saved_without_their_optimizer(tmp_path):
    inner = keras.Sequential([keras.layers.Dense(3)])
    network = keras.Sequential([inner, keras.layers.Dense(1, "sigmoid")])
    for model in (inner, network):
        model.compile("adam", "mse")
    dist = Resampled(tfd.Sample(tfd.Normal(0.0, 1.0), [2]), network)
    save(dist, tmp_path / "dist")
    z = tf.constant([[0.1, 0.2]])
    np.testing.assert_array_equal(
        load(tmp_path / "dist").accept_log_prob(z), dist.accept_log_prob(z)
    )


def flow_network(value):
    """Returns the description of the first network of a flow."""
    if isinstance(value, dict):
        if value.get("name") == "real_nvp_network":
            return value
        value = list(value.values())
    found = [flow_network(item) for item in value] if isinstance(value, list) else []
    return next((item for item in found if item), None)


@pytest.mark.parametrize(
    "activation", [function("trap_module", "run"), function("os", "system"), 3, ["relu"]]
)
def test_activation_of_a_flow_is_only_a_name(activation, saved, trap):
    def change(parameters):
        flow_network(parameters)["config"]["activation"] = activation

    rewrite(saved, with_parameters(change))
    with pytest.raises(ValueError, match="`activation` must be a Keras name"):
        load(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "tfd", "name": "__builtins__"},
        {"kind": "tfd", "name": "Distribution.__subclasses__"},
        {"kind": "tfd", "name": "_Blockwise"},
        {"kind": "tfb", "name": "trap_module.Trap"},
        {"kind": "tfp_lars", "name": "os.system"},
        {"kind": "trap_module", "name": "run"},
        {"kind": "tfd", "name": "Normal", "config": {"loc": 0.0}},
    ],
)
def test_foreign_classes_are_refused(change, saved, trap):
    rewrite(saved, with_parameters(lambda parameters: parameters["proposal"].update(change)))
    with pytest.raises(ValueError, match="cannot be rebuilt"):
        load(saved)


class Pickled:
    """Calls a function when it is loaded with pickle."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_pickled_arrays_are_refused(saved, trap):
    def change(content):
        array = np.empty(1, object)
        array[0] = Pickled(str(trap))
        stored = io.BytesIO()
        np.savez(stored, **{"dist.proposal": array})
        content["arrays.npz"] = stored.getvalue()

    assert b"open" in pickle.dumps(Pickled("path"))
    rewrite(saved, change)
    with pytest.raises(ValueError, match="damaged: Object arrays cannot be loaded"):
        load(saved)


# Damaged files and impossible values.


def with_text(text):
    def edit(content):
        content["distribution.json"] = text

    return edit


def with_header(**changes):
    def edit(content):
        header = {**json.loads(content["distribution.json"]), **changes}
        content["distribution.json"] = json.dumps(header).encode()

    return edit


def with_array(data):
    """Replaces the first array by these bytes."""

    def edit(content):
        stored = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(content["arrays.npz"])) as old,
            zipfile.ZipFile(stored, "w") as new,
        ):
            for i, name in enumerate(old.namelist()):
                new.writestr(name, old.read(name) if i else data)
        content["arrays.npz"] = stored.getvalue()

    return edit


def header_of_array(*shape):
    stored = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stored, header)
    return stored.getvalue()


NOT_A_DISTRIBUTION = "is not a distribution that `tfp_lars.save` has written"
DEEP = b'{"format": "tfp_lars distribution", "version": 1, "distribution": '
NEGATIVE_SCALE = {
    "kind": "tfd",
    "name": "Normal",
    "parameters": {"loc": 0.0, "scale": -1.0, "validate_args": True},
    "path": "dist.proposal",
}
DAMAGED = {
    "deep JSON": (with_text(DEEP + 10**5 * b"[" + 10**5 * b"]" + b"}"), NOT_A_DISTRIBUTION),
    "not UTF-8": (with_text(b'{"\xe9": 1}'), NOT_A_DISTRIBUTION),
    "version as text": (with_header(version="2"), NOT_A_DISTRIBUTION),
    "version null": (with_header(version=None), NOT_A_DISTRIBUTION),
    "arrays of another format": (
        lambda content: content.update({"arrays.npz": b"abc"}),
        NOT_A_DISTRIBUTION,
    ),
    "array of another format": (with_array(b"abcdefghijkl"), NOT_A_DISTRIBUTION),
    "array that is too short": (with_array(header_of_array(5) + b"1234"), NOT_A_DISTRIBUTION),
    # More than any process can address.
    "array of 4e14 bytes": (with_array(header_of_array(10**14) + b"1234"), NOT_A_DISTRIBUTION),
    "negative scale": (
        with_parameters(lambda parameters: parameters.update(proposal=NEGATIVE_SCALE)),
        "cannot be rebuilt",
    ),
    "network of 8e15 bytes": (
        with_parameters(
            lambda parameters: parameters["accept_fn"]["config"]["config"].update(
                hidden_units=[10**15]
            )
        ),
        "cannot be rebuilt",
    ),
}


@pytest.mark.filterwarnings("ignore:Model 'acceptance_network")  # Keras cannot build it
@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_file_is_one_kind_of_error(name, saved):
    change, message = DAMAGED[name]
    rewrite(saved, change)
    with pytest.raises(ValueError, match=message) as caught:
        load(saved)
    assert str(saved) in str(caught.value) and "allow_pickle" not in str(caught.value)


def with_damaged_stream(path):
    """Compresses the file again and changes some bytes of the first member."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    data = bytearray(path.read_bytes())
    data[60:80] = 20 * b"\xff"
    return data


def with_moved_directory(path):
    """The first member would start before the file does."""
    data = bytearray(path.read_bytes())
    field = slice(data.rindex(b"PK\5\6") + 16, data.rindex(b"PK\5\6") + 20)
    data[field] = (int.from_bytes(data[field], "little") + 1000).to_bytes(4, "little")
    return data


def with_encryption(path):
    """Only the flags of the last member in the directory."""
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\1\2") + 8] |= 1
    return data


@pytest.mark.parametrize("damage", [with_damaged_stream, with_moved_directory, with_encryption])
def test_damaged_archive_is_the_same_kind_of_error(damage, saved):
    saved.write_bytes(damage(saved))
    with pytest.raises(ValueError, match=NOT_A_DISTRIBUTION) as caught:
        load(saved)
    assert str(saved) in str(caught.value)


# Keras models.


@pytest.fixture
def model_file(tmp_path):
    z = keras.Input([2])
    dist = Resampled(proposals.standard_normal(2), AcceptanceNetwork((4,)))
    path = tmp_path / "model.keras"
    keras.Model(z, DistributionLayer(dist, name="prior")(z)).save(path)
    return path


def in_layer(change):
    """Returns a function for `rewrite` that changes the configuration of the layer."""

    def edit(content):
        config = json.loads(content["config.json"])
        change(config["config"]["layers"][-1])
        content["config.json"] = json.dumps(config).encode()

    return edit


@pytest.mark.parametrize("name", ["other module", "Keras package", "lambda", "nested initializer"])
def test_model_with_a_hostile_network_is_refused(name, model_file, trap):
    def change(layer):
        parameters = layer["config"]["distribution"]["parameters"]
        parameters["accept_fn"]["config"] = HOSTILE_NETWORKS[name]()

    rewrite(model_file, in_layer(change))
    with pytest.raises(ValueError, match="The network names"):
        keras.saving.load_model(model_file)
    with pytest.raises(ValueError, match="The network names"):
        keras.saving.load_model(model_file, safe_mode=False)


def test_model_with_a_foreign_distribution_is_refused(model_file, trap):
    def change(layer):
        proposal = layer["config"]["distribution"]["parameters"]["proposal"]
        proposal.update(kind="trap_module", name="Trap")

    rewrite(model_file, in_layer(change))
    with pytest.raises(ValueError, match="'Trap' of kind 'trap_module', which is not known"):
        keras.saving.load_model(model_file)


def test_model_with_a_lambda_layer_is_refused(tmp_path, trap):
    z = keras.Input([2])
    layer = DistributionLayer(tfd.MultivariateNormalDiag(tf.zeros(2)))
    model = keras.Model(z, layer(keras.layers.Lambda(lambda z: 2 * z)(z)))
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="safe_mode=False"):
        keras.saving.load_model(tmp_path / "model.keras")


def test_lambda_layer_is_refused_when_it_is_saved(tmp_path):
    """Not only when the file is loaded."""
    network = keras.Sequential([keras.layers.Lambda(lambda z: tf.sigmoid(z[..., :1]))])
    dist = Resampled(proposals.standard_normal(2), network)
    message = "(?s)could not be loaded again.*keras.layers.Lambda.*register_keras_serializable"
    with pytest.raises(ValueError, match=message):
        save(dist, tmp_path / "dist")
    with pytest.raises(NotImplementedError, match=message):
        DistributionLayer(dist).get_config()


# What is allowed.


@keras.saving.register_keras_serializable(package="test_hostile_files")
def squash(x):
    return keras.ops.tanh(x)


def many_layers():
    z = keras.Input([4])
    h = keras.layers.Dense(
        8,
        activation=squash,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.1, seed=1),
        kernel_regularizer=keras.regularizers.L2(0.1),
        bias_constraint=keras.constraints.MaxNorm(2.0),
    )(z)
    h = keras.layers.Dropout(0.1, seed=1)(h)
    h = keras.ops.reshape(h + keras.ops.sum(h, axis=-1, keepdims=True), (-1, 4, 2))
    h = keras.layers.Bidirectional(keras.layers.LSTM(3))(h)
    h = keras.layers.Dense(3, activation=keras.activations.silu)(
        keras.layers.BatchNormalization()(h)
    )
    inner = keras.Sequential([keras.layers.Dense(3, "gelu"), keras.layers.LeakyReLU()])
    return keras.Model(z, keras.layers.Dense(1, "sigmoid")(inner(h)))


def test_ordinary_networks_are_loaded(tmp_path):
    dist = Resampled(proposals.standard_normal(4), many_layers())
    save(dist, tmp_path / "dist")
    z = dist.proposal.sample(5, seed=1)
    np.testing.assert_array_equal(
        load(tmp_path / "dist").accept_log_prob(z), dist.accept_log_prob(z)
    )


@keras.saving.register_keras_serializable(package="test_hostile_files", name="renamed")
class Own(keras.layers.Layer):
    def call(self, z):
        return keras.ops.sigmoid(keras.ops.sum(z, axis=-1, keepdims=True))


@pytest.mark.parametrize("module", ["__main__", "another.module"])
def test_registered_class_is_loaded_whatever_its_module(module, tmp_path, monkeypatch):
    """Keras writes no module for a class of a script. Classes are also moved."""
    monkeypatch.setattr(Own, "__module__", module)
    dist = Resampled(proposals.standard_normal(2), keras.Sequential([Own()]))
    save(dist, tmp_path / "dist")
    monkeypatch.undo()
    loaded = load(tmp_path / "dist")
    assert isinstance(loaded.accept_fn.layers[0], Own)


def test_traps_work(trap):
    """The hostile configurations are what they claim to be."""
    config = copy.deepcopy(sequential_of(stored_lambda()))
    network = keras.saving.deserialize_keras_object(config, safe_mode=False)
    assert isinstance(network.layers[-1], keras.layers.Lambda)
