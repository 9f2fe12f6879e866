"""`Resampled`: the plumbing between TFP's distributions and density, sampler and normalizer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _arguments, _compat, _nested, _seeds, density, ownership
from tfp_lars._points import Points
from tfp_lars._proposal_checks import check_proposal, probe_draws, tangent_space
from tfp_lars._run_sampler import SamplerRun
from tfp_lars.acceptance import LogAcceptance, SlicedAcceptance
from tfp_lars.normalizer import (
    LogNormalizer,
    MovingAverage,
    estimate_log_normalizer,
    moving_averages,
)
from tfp_lars.normalizer.argument import (
    as_normalizer,
    check_estimate,
    check_outside_of_functions,
)
from tfp_lars.normalizer.monte_carlo import ProposalSums
from tfp_lars.normalizer.training_estimate import log_mean_accept

__all__ = ["Resampled", "ResampledDistribution"]

tfd = tfp.distributions

_UNSET = object()


class Resampled(tfd.Distribution):
    """A proposal, resampled with a learned acceptance probability (LARS).

    Draw `z` from the proposal `pi`, keep it with probability `a(z)`, else draw again; take the
    `T`-th draw whatever it is. With `Z = E_pi[a]`, what is kept has the density

        p_T(z) = pi(z) * (a(z) * (1 - alpha) / Z + alpha),    alpha = (1 - Z)**(T - 1)

    which goes from the proposal at `T = 1` to `pi(z) * a(z) / Z` at `T = None`, resampling without
    end.

    #### Example

    >>> prior = Resampled(
    ...     proposal=tfd.MultivariateNormalDiag(tf.zeros(50)),
    ...     accept_fn=AcceptanceNetwork(),
    ...     T=100,
    ... )
    >>> z = prior.sample(7, seed=1)
    >>> z.shape
    TensorShape([7, 50])
    >>> prior.log_prob(z).shape  # to train on: each call moves the average of Z
    TensorShape([7])
    >>> frozen = prior.freeze(num_samples=10_000, seed=2)  # to evaluate with
    >>> bool(tf.reduce_all(frozen.log_prob(z) == frozen.log_prob(z)))
    True

    #### Training

    With a `MovingAverage`, the default, `log_prob` is a function to take gradients of: its
    gradient reaches `accept_fn`, the proposal and `z`, that of log Z included. Each call updates
    the average once. In a VAE, pass the encoder's log density of `z`, so that `z` takes part in
    the estimate of Z: `log_prob(z, target_log_prob=q.log_prob(z))`.

    A Keras 3 model does not look into distributions: hold this one in a `DistributionLayer`, or
    nothing of it is trained or saved.

    #### Evaluation

    `freeze` makes a distribution on the same networks with a fixed log Z, whose `log_prob` is a
    pure function. Sampling needs no Z and is exact at any time. `with dist.held():` evaluates with
    the moving average as it is.

    #### Batches

    Each member of the proposal's batch has its own Z and its own stream of draws. The cost of
    sampling is set by the member with the smallest Z. `accept_fn` receives all members, so it may
    treat them differently. After slicing it still does: a slice calls it on the whole batch and
    keeps the values of the members that remain. A Keras network receives one flat batch and cannot
    tell members apart; a slice calls it on the remaining members only.

    #### Support

    `log_prob` is -inf wherever the proposal's is, whatever a(z) is there. A transformation of a
    discrete proposal adds no Jacobian term, also if the proposal is `tfd.Independent`,
    `tfd.Sample` or another wrapper, for which TFP alone adds one.

    #### Variables

    `trainable_variables` lists the weights of `accept_fn` and of the proposal, once each, as
    `tf.Variable`s. Of a plain function it lists the trainable variables that the function read
    when it was first called, at construction. Freezing a Keras network with
    `network.trainable = False` does not take its weights off the list.

    #### References

    M. Bauer and A. Mnih. Resampled Priors for Variational Autoencoders. AISTATS 2019.
    """

    def __init__(
        self,
        proposal: tfd.Distribution,
        accept_fn: Callable[[tf.Tensor], tf.Tensor],
        T: int | float | None = 100,
        *,
        from_logits: bool = False,
        normalizer: MovingAverage | LogNormalizer | tf.Tensor | float | None = None,
        max_attempts: int = 10**7,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Resampled",
    ):
        """Wraps `proposal`.

        Args:
          proposal: Any TFP distribution with a single-tensor event, continuous or discrete, with
            or without a batch shape.
          accept_fn: The acceptance probability a(z), in [0, 1]: a function, a Keras 3 or tf_keras
            model, or a `tf.Module`. It gets `z` of shape sample + batch + event and returns shape
            sample + batch, or the same with a trailing 1. A Keras model gets one flat batch,
            shape `[N]` + event (`[N, 1]` for scalar events). If its class has a method `logits`,
            that is called instead. In eager mode the constructor calls it on a few draws from the
            proposal and checks what it returns. Sampling and estimating Z trace it once, as
            `tf.function` does: Python values that it reads are fixed then. Use a `tf.Variable`
            for a value that changes.
          T: How many proposals a draw may take, the last of them kept untested: an integer of at
            least 1, or `None` (also `math.inf`) for no limit.
          from_logits: Whether `accept_fn` returns logits instead of probabilities.
          normalizer: How log Z is known: a `MovingAverage` (default: a fresh one) or a fixed
            value: a number, tensor, non-trainable variable, or `LogNormalizer`, of shape `[]` or
            of the proposal's batch shape. A fixed value is kept in a non-trainable variable, which
            is saved with the weights. A tensor stays a tensor inside a `tf.function` and under a
            `GradientTape`, so that gradients reach it.
          max_attempts: Without a limit, how many proposals one draw may take before sampling
            ends in an error.
          validate_args: Whether to check values at run time, in graphs too.
          allow_nan_stats: As in every TFP distribution.
          name: Name of the distribution.
        """
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            check_proposal(proposal)
            self._T = _arguments.checked_truncation(T)
            self._max_attempts = _arguments.checked_count("max_attempts", max_attempts, most=2**30)
            self._from_logits = bool(from_logits)
            self._proposal = proposal
            ownership.build_networks(proposal)
            # TFP's walk over attributes does not see them.
            self._proposal_keras3_variables = [
                v
                for network in ownership.keras3_layers(proposal)
                for v in ownership.tf_variables(network)
            ]
            self._accept_fn = _compat.untracked(accept_fn)
            self._points = Points(proposal)
            draws = probe_draws(proposal)
            # Stands in for z outside the support. Parameters may move the support away from it
            # later: then only gradients suffer, and only if a(z) has none there.
            self._point = None if draws is None else draws[0].numpy()
            self._log_accept = LogAcceptance(
                accept_fn,
                from_logits=self._from_logits,
                batch_shape=proposal.batch_shape,
                event_shape=proposal.event_shape,
                dtype=tf.as_dtype(proposal.dtype),
                draws=draws,
                validate_args=validate_args,
            )
            self._normalizer = as_normalizer(normalizer)
            self._normalizer.build(proposal.batch_shape, self._log_accept.output_dtype)
            self._estimate = normalizer if isinstance(normalizer, LogNormalizer) else None
            # A copy must share the normalizer that was created here.
            parameters["normalizer"] = self._normalizer.argument
            self._sampler = SamplerRun(
                proposal,
                self._log_accept.unchecked,
                max_attempts=self._max_attempts,
                complaint=self._log_accept.complaint,
                validate_args=validate_args,
            )
            self._proposal_sums = ProposalSums(proposal, self._log_accept)
            self._ownership_checked = False
            super().__init__(
                dtype=proposal.dtype,
                reparameterization_type=tfd.NOT_REPARAMETERIZED,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                parameters=parameters,
                name=name,
            )

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {
            "proposal": tfp.util.BatchedComponentProperties(),
            "normalizer": tfp.util.ParameterProperties(event_ndims=0),
        }

    @property
    def proposal(self) -> tfd.Distribution:
        """The distribution that candidates are drawn from."""
        return self._proposal

    @property
    def accept_fn(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """The acceptance function, as it was given. In a slice, that of the remaining members."""
        return self._accept_fn

    @property
    def T(self) -> int | None:
        """How many proposals a draw may take; `None` for no limit."""
        return self._T

    @property
    def from_logits(self) -> bool:
        """Whether `accept_fn` was said to return logits."""
        return self._from_logits

    @property
    def normalizer(self) -> MovingAverage | tf.Tensor | tf.Variable:
        """The `MovingAverage`, or the fixed log Z as a variable or tensor."""
        return self._normalizer.argument

    @property
    def estimate(self) -> LogNormalizer | None:
        """The estimate that the fixed log Z comes from, with its standard error.

        `None` where log Z is not fixed, was given as a number, or was since restored from a file.
        """
        if self._estimate is None:
            return None
        with tf.init_scope():
            value = tf.get_static_value(tf.convert_to_tensor(self._normalizer.argument))
        expected = np.asarray(self._estimate.log_z, value.dtype)
        return self._estimate if np.array_equal(value, expected) else None

    @property
    def max_attempts(self) -> int:
        """Without a limit `T`, how many proposals one draw may take."""
        return self._max_attempts

    @property
    def proposal_sums(self) -> ProposalSums:
        """Sums of a(z) over batches of proposals, for `estimate_log_normalizer`."""
        return self._proposal_sums

    def accept_log_prob(self, z: tf.Tensor, name: str = "accept_log_prob") -> tf.Tensor:
        """`log a(z)`, of shape sample + batch: what ranks samples.

        Args:
          z: Shape sample + batch + event.
          name: Name of the ops.

        Returns:
          log_accept: Shape sample + batch.
        """
        with self._name_and_control_scope(name):
            z = self._points.broadcast(tf.convert_to_tensor(z, self.dtype, name="z"))
            return self._points.unflatten(self._log_accept(self._points.flatten(z)), z)

    def log_ratio(self, z: tf.Tensor, name: str = "log_ratio", **proposal_kwargs: Any) -> tf.Tensor:
        """`log p_T(z) - log pi(z)`: what resampling adds, without the proposal's density.

        Where that density is known by a bound alone (`proposals.vae_marginal`), the bound and this
        are a bound on the resampled density. With a `MovingAverage` a call is one update and
        has the gradients of `log_prob`, as far as they do not come through `log pi(z)`.

        Args:
          z: Shape sample + batch + event.
          name: Name of the ops.
          **proposal_kwargs: For the proposal's `log_prob` of the draws that estimate Z, which
            `MovingAverage(score_function=True)` needs, and nothing else here.

        Returns:
          log_ratio: Shape sample + batch; 0, and no update, when `T` is 1.
        """
        with self._name_and_control_scope(name):
            z = self._points.broadcast(tf.convert_to_tensor(z, self.dtype, name="z"))
            return self._log_ratio(z, None, proposal_kwargs)

    @property
    def log_normalizer(self) -> tf.Tensor:
        """The current log Z, of the batch shape. Draws nothing."""
        return tf.broadcast_to(self._normalizer.value, self.batch_shape_tensor())

    @property
    def acceptance_rate(self) -> tf.Tensor:
        """Z, the share of proposals that are accepted, of the batch shape."""
        return tf.exp(self.log_normalizer)

    @property
    def truncation_weight(self) -> tf.Tensor:
        """`(1 - Z)**(T - 1)`, the share of draws that are kept untested, of the batch shape."""
        return tf.exp(density.log_truncation_weight(self.log_normalizer, self.T))

    @property
    def expected_attempts(self) -> tf.Tensor:
        """`(1 - (1 - Z)**T) / Z`, how many proposals a draw takes in the mean, of batch shape."""
        return tf.exp(density.log_expected_attempts(self.log_normalizer, self.T))

    def freeze(self, estimate: LogNormalizer | tf.Tensor | float | None = None, **kwargs):
        """A distribution on the same networks whose log Z is fixed.

        Resampled distributions inside the proposal are frozen, too, each with an estimate of its
        own: the distributions that hold them are built again from their constructor arguments.

        >>> dist = Resampled(tfd.Uniform(), lambda z: z, T=100)  # Z = 1/2
        >>> frozen = dist.freeze(num_samples=10**5, seed=0)
        >>> frozen.estimate
        LogNormalizer(log_z=-0.6941 ± 0.0018, Z=0.4995, num_samples=100000, method='monte_carlo')

        Args:
          estimate: log Z: a `LogNormalizer`, number or tensor. By default it is estimated.
          **kwargs: Passed to `estimate_log_normalizer`: `num_samples`, `target_stderr`, `seed`, ...

        Returns:
          frozen: A `Resampled` that shares `accept_fn` and the proposal. `frozen.log_prob` is a
            pure function: the same input gives the same output. Its log Z is saved with the
            weights; `frozen.estimate` has the standard error.
        """
        check_estimate(estimate)
        if estimate is not None and kwargs and not moving_averages(self.proposal):
            raise TypeError(
                f"`freeze` got an `estimate` and also {sorted(kwargs)}, which are for making one."
            )
        proposal = self._freeze_proposal(kwargs)
        if estimate is None:
            estimate = estimate_log_normalizer(self, **kwargs)
        frozen = self.copy(normalizer=estimate, proposal=proposal)
        if moving_averages(frozen):
            raise ValueError(
                f"`freeze` cannot reach a moving average inside {self.name!r}: it belongs to a "
                "distribution that is no constructor argument of what holds it. Freeze that "
                "distribution first, and build this one on it."
            )
        return frozen

    def _freeze_proposal(self, kwargs: dict[str, Any]) -> tfd.Distribution:
        def replace(part):
            if not moving_averages(part):
                return part
            if not isinstance(part, Resampled):
                return None
            is_fixed = not moving_averages(part._normalizer)
            return part.freeze(part._normalizer.argument if is_fixed else None, **kwargs)

        return _nested.rebuild(self.proposal, replace)

    @contextlib.contextmanager
    def held(self) -> Iterator[Resampled]:
        """Holds every moving average in it within a `with` block.

        `log_prob` then uses the averages as they are, also in graphs that are traced already.
        Nested distributions are held, too. Where log Z is fixed there is nothing to hold.

        >>> dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid)
        >>> _ = dist.log_prob(0.3)  # one update
        >>> with dist.held():
        ...     value = dist.log_prob(0.3)
        >>> int(dist.normalizer.num_updates)
        1
        """
        with contextlib.ExitStack() as stack:
            for average in moving_averages(self):
                stack.enter_context(average.held())
            yield self

    def sample(self, sample_shape=(), seed=None, name: str = "sample", **kwargs) -> tf.Tensor:
        """Exact, independent draws from p_T; they need no estimate of Z and carry no gradient.

        Args:
          sample_shape: Integer, or shape of the draws.
          seed: Python `int`, or an `int32[2]` stateless seed: the same gives the same draws.
          name: Name of the ops.
          **kwargs: `T` overrides the truncation for this call.

        Returns:
          samples: Shape sample + batch + event.
        """
        _arguments.check_sample_shape(sample_shape)
        plain = isinstance(sample_shape, (int, np.integer)) and not kwargs.keys() - {"T"}
        if plain and tf.executing_eagerly():
            # TFP's detour by shapes of any rank costs several times the drawing of one sample.
            return self._draw(sample_shape, seed, **kwargs)[0]
        return super().sample(sample_shape, seed, name, **kwargs)

    def sample_with_attempts(
        self, sample_shape=(), seed=None, name: str = "sample_with_attempts", *, T=_UNSET
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws, and how many proposals each of them took.

        Args:
          sample_shape: Integer, or shape of the draws.
          seed: Python `int`, or an `int32[2]` stateless seed.
          name: Name of the ops.
          T: Overrides the truncation for this call.

        Returns:
          samples: Shape sample + batch + event.
          attempts: `int32`, shape sample + batch; at most `T`.
        """
        _arguments.check_sample_shape(sample_shape)
        with self._name_and_control_scope(name):
            sample_shape, n = self._expand_sample_shape_to_vector(
                tf.cast(sample_shape, tf.int32), "sample_shape"
            )
            samples, attempts = self._draw(n, seed, T)
            samples = tf.reshape(samples, tf.concat([sample_shape, tf.shape(samples)[1:]], 0))
            attempts = tf.reshape(attempts, tf.concat([sample_shape, tf.shape(attempts)[1:]], 0))
            samples = self._set_sample_static_shape(samples, sample_shape)
            event_ndims = self.event_shape.rank
            return samples, tf.ensure_shape(
                attempts, samples.shape[: samples.shape.rank - event_ndims]
            )

    def copy(self, **override_parameters_kwargs) -> Resampled:
        """A distribution with some arguments replaced, that shares all the rest.

        With another `accept_fn`, `proposal` or `from_logits` there is another Z. Such a copy gets a
        fresh moving average with the same settings; where log Z is fixed, it needs `normalizer=`.

        Args:
          **override_parameters_kwargs: Arguments of the constructor, such as `T=None`.

        Returns:
          copy: A `Resampled` on the same networks and, unless replaced, the same normalizer.
        """
        old, new = self.parameters, {**self.parameters, **override_parameters_kwargs}
        replaced = [n for n in ("proposal", "accept_fn", "from_logits") if new[n] is not old[n]]
        keeps_normalizer = "normalizer" not in override_parameters_kwargs
        if replaced and keeps_normalizer:
            check_outside_of_functions()
            new["normalizer"] = self._normalizer.fresh(replaced)
        # TFP's own `copy` makes the copy hold on to the original, and so to what was replaced.
        copy = type(self)(**new)
        if keeps_normalizer and not replaced:
            copy._estimate = self._estimate
        return copy

    def __reduce_ex__(self, protocol):
        """Refuses: neither `copy` nor `pickle` know which network owns which variable."""
        raise TypeError(
            f"The distribution {self.name!r} cannot be copied by the `copy` module, nor pickled: "
            "its networks and graphs are tied to their variables. Use `dist.copy()`, which shares "
            "the networks. To store it, save its variables with `tf.train.Checkpoint`, and restore "
            "them into a distribution that is built in the same way."
        )

    def __getitem__(self, slices) -> Resampled:
        """Slices the batch; needs a fixed log Z."""
        slices = tuple(slices) if isinstance(slices, (list, tuple)) else (slices,)
        log_z = self._normalizer[slices]
        accept_fn = self.accept_fn
        if self._log_accept.sees_members:
            static = self.batch_shape.is_fully_defined()
            batch_shape = (
                np.array(self.batch_shape, np.int32) if static else self.batch_shape_tensor()
            )
            accept_fn = SlicedAcceptance.of(accept_fn, batch_shape, slices, self.event_shape.rank)
        return self.copy(
            proposal=self.proposal[slices],
            accept_fn=accept_fn,
            normalizer=log_z,
        )

    @property
    def _experimental_tangent_space(self):
        # TFP asks with `hasattr` whether there is one. Without it, a transformed discrete
        # distribution gets a Jacobian term.
        hook = tangent_space(self.proposal)
        if hook is None:
            raise AttributeError("_experimental_tangent_space")
        return hook

    def _batch_shape(self):
        return self.proposal.batch_shape

    def _batch_shape_tensor(self, **_):
        return self.proposal.batch_shape_tensor()

    def _event_shape(self):
        return self.proposal.event_shape

    def _event_shape_tensor(self):
        return self.proposal.event_shape_tensor()

    def _default_event_space_bijector(self):
        return self.proposal.experimental_default_event_space_bijector()

    def _log_prob(self, z, target_log_prob=None, **proposal_kwargs):
        """The log density, log p_T(z).

        With a `MovingAverage`, `z` of shape `[R]` is a batch of `R` training points, and one call
        is one update. `target_log_prob`, of shape sample + batch, is the log density of `z` under
        what it was drawn from (the encoder of a VAE); with it, `z` takes part in the estimate.
        `T = 1` is the proposal's own log density, and no update. Other keyword arguments go to the
        proposal's `log_prob`.
        """
        log_proposal = self.proposal.log_prob(z, **proposal_kwargs)
        if target_log_prob is not None:
            target_log_prob = _arguments.checked_target(target_log_prob, log_proposal)
        if self.T == 1:
            return log_proposal
        dtype = self._log_accept.output_dtype
        _arguments.check_accept_dtype(dtype, log_proposal.dtype)
        result_dtype = log_proposal.dtype
        log_proposal = tf.cast(log_proposal, dtype)
        # Outside the support a(z) may be anything, also NaN. There it is evaluated at another
        # point, and the value is dropped.
        outside = log_proposal < dtype.min  # -inf
        z = self._points.broadcast(z)
        if self._point is not None:
            z = self._points.replace(z, outside, self._point)
        log_weight = None
        if target_log_prob is not None:
            log_weight = log_proposal - tf.cast(target_log_prob, dtype)
            log_weight = tf.where(outside, log_proposal, log_weight)
        log_ratio = self._log_ratio(z, log_weight, proposal_kwargs)
        log_prob = tf.where(outside, log_proposal, log_proposal + log_ratio)
        return tf.cast(log_prob, result_dtype)

    def _log_ratio(self, z, log_weight, proposal_kwargs):
        """`log p_T(z) - log pi(z)` for broadcast `z`, of shape sample + batch."""
        # Not for `z` and the draws for Z together: the draws need not wait for the encoder that
        # `z` comes from, and need no gradient if the proposal is not trained.
        log_accept = self._log_accept(self._points.flatten(z))  # [R] + B
        if self.T == 1:
            return self._points.unflatten(tf.zeros_like(log_accept), z)
        log_target = None
        if log_weight is not None:
            log_target = tf.stop_gradient(tf.reshape(log_weight, tf.shape(log_accept))) + log_accept

        def estimate(num_samples, seed, score_function):
            self._warn_if_not_owned()
            return log_mean_accept(
                self.proposal,
                self._log_accept,
                num_samples,
                seed,
                score_function,
                proposal_kwargs,
            )

        log_z = self._normalizer(estimate, log_target)
        return self._points.unflatten(density.log_ratio(log_accept, log_z, self.T), z)

    def _sample_n(self, n, seed=None, T=_UNSET):
        """`T` overrides the truncation for this call. The draws carry no gradient.

        The same `seed`, an `int` or a stateless `int32[2]`, gives the same draws in eager mode and
        in graphs.
        """
        return self._draw(n, seed, T)[0]

    def _draw(self, n, seed, T=_UNSET):
        """`n` draws of each batch member, `[n] + B + event`, and their attempts, `[n] + B`."""
        T = self.T if T is _UNSET else _arguments.checked_truncation(T)
        seed = _seeds.new_seed() if seed is None else _seeds.stateless_seed(seed)
        if T == 1:
            attempts = tf.ones(tf.concat([[n], self.batch_shape_tensor()], 0), tf.int32)
            return tf.stop_gradient(self.proposal.sample(n, seed=seed)), attempts
        return self._sampler(n, T or 0, seed)

    def _warn_if_not_owned(self):
        # `fit` traces, so a look at the stack in eager mode would be in vain.
        if not self._ownership_checked and not tf.executing_eagerly():
            self._ownership_checked = ownership.warn_if_not_owned(self.variables, self.name)


ResampledDistribution = Resampled
