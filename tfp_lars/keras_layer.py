"""`DistributionLayer`: a Keras 3 layer that owns the variables of a TFP distribution."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _compat, _description, _rebuilding, ownership
from tfp_lars.normalizer import hold_while

__all__ = ["DistributionLayer"]

tfd = tfp.distributions


@keras.saving.register_keras_serializable(package="tfp_lars")
class DistributionLayer(keras.layers.Layer):
    """Lets a Keras 3 model train, save and restore the variables of a TFP distribution.

    Keras 3 does not look into `tf.Module`s such as TFP's distributions. A distribution in a plain
    attribute of a Keras 3 model is silently neither trained nor saved. In this layer it is both.
    This holds for `Resampled` and for all distributions of TFP. The input for a joint distribution
    is a list or dictionary, as for its `log_prob`.

    >>> class Model(keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.prior = DistributionLayer(tfd.Normal(tf.Variable(0.0), tf.Variable(1.0)))
    ...
    ...     def call(self, z):
    ...         return self.prior(z)
    >>> len(Model().trainable_variables)
    2

    Calling the layer evaluates `log_prob`. As for `keras.layers.BatchNormalization`, Keras decides
    whether the call is part of training. In `evaluate`, in `predict`, in the validation of `fit`,
    in a model that `export` writes and with `training=False`, the moving averages of a `Resampled`
    are held. All other calls update them. `layer.distribution.log_prob` does not depend on Keras:
    it updates them unless they are held.

    A model with this layer can be saved as a whole (`model.save("model.keras")`) if the
    distribution can be described. `save` lists what can. Other distributions raise an error. A
    model with one of these must be a subclass of `keras.Model` that creates the distribution in its
    constructor. `keras.saving.load_model` needs `import tfp_lars` before it.

    Args:
      distribution: Any TFP distribution. Networks in it are built if necessary.
      trainable: Whether to train the variables. The property `trainable` changes this later.
      **kwargs: Passed to `keras.layers.Layer`, such as `name`.
    """

    def __init__(self, distribution: tfd.Distribution, *, trainable: bool = True, **kwargs):
        if not isinstance(distribution, tfd.Distribution):
            raise TypeError(f"`distribution` must be a TFP distribution; got {distribution!r}.")
        dtype = distribution.dtype
        # Only what the layer reports, such as `compute_dtype`. Under a mixed precision policy it
        # would report half precision, in which the distribution is not evaluated.
        kwargs.setdefault("dtype", dtype.name if _is_floating(dtype) else "float32")
        # Keras would cast all floating arguments to that type, also `T`.
        super().__init__(autocast=False, **kwargs)
        ownership.build_networks(distribution)
        self.distribution = distribution
        # Keras tracks these networks itself, under their own names.
        self.networks = ownership.keras3_layers(distribution)
        owned = {id(v) for net in self.networks for v in ownership.tf_variables(net)}
        own = [v for v in distribution.variables if id(v) not in owned]
        self.own_variables = [
            ownership.shared_keras_variable(v, number) for number, v in enumerate(own)
        ]
        self.built = True
        if not trainable:
            # Setting the property freezes the variables. As an argument of the constructor of Keras
            # it would not reach them.
            self.trainable = False

    def call(self, z: tf.Tensor, training: bool | None = None, **kwargs) -> tf.Tensor:
        """Returns `distribution.log_prob(z, **kwargs)`, of shape sample + batch.

        Args:
          z: Shape sample + batch + event; a nested structure for a joint distribution.
          training: Whether to update moving averages and to run networks, of Keras 3 or tf_keras,
            in training mode. By default the mode of Keras. Outside of Keras, averages are updated
            and networks decide themselves.
          **kwargs: Passed to `log_prob`, such as `target_log_prob`. If events are floating, `z` and
            floating tensors among these, except `T`, are cast to their type.

        Returns:
          log_prob: Shape sample + batch.
        """
        dtype = self.distribution.dtype  # of each part of a joint distribution
        z = tf.nest.map_structure(_cast_float, z, dtype, check_types=False)
        if isinstance(dtype, tf.DType):
            # A large T is infinite in half precision.
            kwargs = {k: v if k == "T" else _cast_floats(v, dtype) for k, v in kwargs.items()}
        # Keras may have called the layer on the same tensor in another graph. TFP's bijectors would
        # then return cached results of that graph.
        z = tf.nest.map_structure(tf.identity, z)
        training = ownership.is_training() if training is None else training
        if not tf.executing_eagerly():  # `fit` traces this code
            ownership.check_updated_once()
        if training is None:
            return self.distribution.log_prob(z, **kwargs)
        # tf_keras networks do not know the mode of Keras 3.
        mode = _compat.training_mode() if training else _compat.inference_mode()
        with hold_while(not training), mode:
            return self.distribution.log_prob(z, **kwargs)

    def compute_output_spec(self, *args, **kwargs):
        """Returns shape and type of `log_prob`. The layer does not know its type."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(self, input_shape):
        """Returns sample + batch shape: `input_shape` without the event, broadcast to the batch."""
        dist = self.distribution
        shapes = tf.nest.flatten(keras.tree.map_shape_structure(tf.TensorShape, input_shape))
        events = tf.nest.flatten(dist.event_shape)  # of the parts of a joint distribution
        leads = [s[: s.rank - e.rank] for s, e in zip(shapes, events, strict=True)]
        batches = [tf.TensorShape(b) for b in tf.nest.flatten(dist.batch_shape)]
        return tuple(functools.reduce(tf.broadcast_static_shape, [*leads, *batches]))

    def save_own_variables(self, store):
        """Saves variables by number, those that can be trained first."""
        for number, variable in enumerate(self._in_file()):
            store[f"{number}"] = variable

    def load_own_variables(self, store):
        """Loads variables by number. Raises if their types show that the file does not fit."""
        variables = self._in_file()
        if len(store.keys()) == len(variables):  # else Keras raises
            for number, variable in enumerate(variables):
                _check_kind(store[f"{number}"].dtype, variable, number)
            number_in_file = {id(v): number for number, v in enumerate(variables)}
            expected = self._trainable_variables + self._non_trainable_variables
            store = {str(n): store[f"{number_in_file[id(v)]}"] for n, v in enumerate(expected)}
        super().load_own_variables(store)

    def _in_file(self) -> list[keras.Variable]:
        """Returns the variables in the order of a file.

        Keras saves frozen variables last. Whether one is frozen can differ between two processes,
        and this layer may share it with another one that is frozen.
        """
        return sorted(self.own_variables, key=lambda v: not v.value.trainable)

    def get_config(self):
        """Returns the configuration for `from_config`, without the weights of networks.

        Raises:
          NotImplementedError: If the distribution cannot be described.
        """
        try:
            described = _description.Describer(self.distribution, for_model=True)
        except ValueError as error:
            raise NotImplementedError(
                f"The layer {self.name!r} cannot be saved as part of a whole model. {error} Or "
                "write the model as a subclass of `keras.Model` that creates the distribution in "
                "its constructor and defines `get_config`."
            ) from error
        config = _description.inlined(described.config, described.arrays)
        return {**super().get_config(), "distribution": config}

    @classmethod
    def from_config(cls, config):
        """Creates a layer from the result of `get_config`."""
        distribution = _rebuilding.Rebuilder()(config["distribution"])
        return super().from_config({**config, "distribution": distribution})


def _is_floating(dtype: Any) -> bool:
    return isinstance(dtype, tf.DType) and dtype.is_floating


def _cast_float(value: Any, dtype: Any) -> Any:
    """Casts a floating tensor to a floating type, and returns other values unchanged."""
    are_floating = tf.is_tensor(value) and value.dtype.is_floating and _is_floating(dtype)
    return tf.cast(value, dtype) if are_floating else value


def _cast_floats(values: Any, dtype: tf.DType) -> Any:
    return tf.nest.map_structure(lambda value: _cast_float(value, dtype), values)


def _check_kind(dtype, variable: keras.Variable, number: int) -> None:
    """Raises if a saved variable has another kind of type. Keras compares only shapes."""
    kinds = [np.dtype(x).kind for x in (dtype, variable.dtype)]
    # NumPy does not know all kinds (bfloat16). Keras checks the others.
    if kinds[0] != kinds[1] and set(kinds) <= set("biuf"):
        raise ValueError(
            f"Variable {number} has type {dtype} in the file, but {variable.name!r} has type "
            f"{variable.dtype}. The file was written for another distribution or by another "
            "version of tfp_lars."
        )
