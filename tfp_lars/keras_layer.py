"""`DistributionLayer`: a Keras 3 layer that owns the variables of a TFP distribution."""

from __future__ import annotations

import contextlib

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import ownership
from tfp_lars.normalizer import hold_while

__all__ = ["DistributionLayer"]

tfd = tfp.distributions


class DistributionLayer(keras.layers.Layer):
    """Lets a Keras 3 model train, save and restore the variables of a TFP distribution.

    TFP's distributions are `tf.Module`s, which Keras 3 does not look into: a distribution in a
    plain attribute of a Keras 3 model is silently neither trained nor saved. As a layer it is
    both, whether it is `Resampled` or any of TFP's own.

    >>> class Model(keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.prior = DistributionLayer(tfd.Normal(tf.Variable(0.0), tf.Variable(1.0)))
    ...
    ...     def call(self, z):
    ...         return self.prior(z)
    >>> len(Model().trainable_variables)
    2

    Calling the layer evaluates `log_prob`. Keras decides whether the call is part of a training, as
    for `keras.layers.BatchNormalization`: in `evaluate`, in `predict`, in the validation of `fit`
    and with `training=False`, the moving averages of a `Resampled` are held. Outside of all these
    the layer is plain `log_prob`, which updates them. A method of `layer.distribution` knows
    nothing of Keras and always updates.

    Since a distribution does not say how it was made, a model that is to be saved as a whole
    (`.keras`) builds it in its own constructor.

    Args:
      distribution: Any TFP distribution. Its networks are built if they are not yet.
      **kwargs: Passed to `keras.layers.Layer`: `name`, `trainable`.
    """

    def __init__(self, distribution: tfd.Distribution, **kwargs):
        if not isinstance(distribution, tfd.Distribution):
            raise TypeError(f"`distribution` must be a TFP distribution; got {distribution!r}.")
        dtype = getattr(distribution, "dtype", None)
        if isinstance(dtype, tf.DType) and dtype.is_floating:
            # Keras casts floating inputs to this type: under a mixed precision policy, too, z must
            # come in that of the distribution.
            kwargs.setdefault("dtype", dtype.name)
        super().__init__(**kwargs)
        ownership.build_networks(distribution)
        self.distribution = distribution
        # Keras tracks these networks by itself, with names of their own.
        self.networks = ownership.keras3_layers(distribution)
        owned = {id(v) for net in self.networks for v in ownership.tf_variables(net)}
        own = [v for v in distribution.variables if id(v) not in owned]
        self.own_variables = [_share(v, number) for number, v in enumerate(own)]
        self.built = True

    def call(self, z: tf.Tensor, training: bool | None = None, **kwargs) -> tf.Tensor:
        """`distribution.log_prob(z, **kwargs)`, of shape sample + batch.

        Args:
          z: Shape sample + batch + event.
          training: Whether moving averages are updated. By default what Keras says; `True` outside
            of Keras.
          **kwargs: Passed to `log_prob`, such as `target_log_prob`.
        """
        # Keras may call an unbuilt layer on the same tensor in another graph first. TFP's bijectors
        # would then return what they remember of it from there.
        z = tf.identity(z)
        training = ownership.is_training() if training is None else training
        held = contextlib.nullcontext() if training is None else hold_while(not training)
        with held:
            return self.distribution.log_prob(z, **kwargs)

    def compute_output_shape(self, input_shape):
        """Sample and batch shape: `input_shape` without the event, broadcast to the batch."""
        lead = tuple(input_shape)[: len(input_shape) - self.distribution.event_shape.rank]
        return tuple(tf.broadcast_static_shape(tf.TensorShape(lead), self.distribution.batch_shape))

    def load_own_variables(self, store):
        """Loads what `save_weights` saved, by number; refuses numbers of another kind."""
        variables = self._trainable_variables + self._non_trainable_variables
        if len(store.keys()) == len(variables):  # else Keras complains
            for number, variable in enumerate(variables):
                _check_kind(store[f"{number}"].dtype, variable, number)
        super().load_own_variables(store)

    def get_config(self):
        """Refuses: a distribution does not say how it was made."""
        raise NotImplementedError(
            f"The layer {self.name!r} cannot be saved as part of a whole model, since a "
            "distribution has no configuration to build it from again. Save the weights alone, "
            "`model.save_weights('model.weights.h5')`; or write the model as a subclass of "
            "`keras.Model` that builds the distribution in its constructor and has a "
            "`get_config` of its own."
        )


def _check_kind(dtype, variable: keras.Variable, number: int) -> None:
    """Keras compares shapes alone, which are often all the same here."""
    kinds = [np.dtype(x).kind for x in (dtype, variable.dtype)]
    # Kinds that NumPy does not know (bfloat16) are left to Keras.
    if kinds[0] != kinds[1] and set(kinds) <= set("biuf"):
        raise ValueError(
            f"The file has {dtype} as variable {number}, but {variable.name!r} is "
            f"{variable.dtype}: it was written for another distribution, or by another version of "
            "tfp_lars."
        )


def _share(variable: tf.Variable, number: int) -> keras.Variable:
    """A `keras.Variable` on top of `variable` itself, not on a copy."""
    # Numbered, since names of `tf.Variable`s may repeat; Keras allows no slash in them.
    short_name = variable.name.split(":")[0].split("/")[-1]
    shared = keras.Variable(
        variable,
        dtype=variable.dtype.name,
        trainable=variable.trainable,
        # Distributions read the variable itself, whatever the precision policy.
        autocast=False,
        name=f"{short_name}_{number}",
    )
    if shared.value is not variable:
        raise RuntimeError(
            f"Keras {keras.__version__} with TensorFlow {tf.__version__} copies the variable "
            f"{variable.name!r} instead of sharing it, so a model would not train the "
            "distribution. DistributionLayer needs Keras 3.10 or newer."
        )
    if variable.constraint is not None:
        # Not a nicety: the masks of `tfb.AutoregressiveNetwork` are constraints of its kernels.
        shared.constraint = lambda value: variable.constraint(tf.convert_to_tensor(value))
    return shared
