"""Memory and traced graphs after many calls and many distributions: `python -m tests.memory`.

Calls `sample` and `log_prob` with shapes that all differ, and makes, uses and drops distributions.
Prints the resident memory and the number of graphs on the way. The exit code is 1 if the number of
graphs grows, or if the memory of the last half grows by more than `MOST_GROWTH`.

TensorFlow keeps a kernel for each new name of a variable. Keras numbers the names of its layers, so
each network leaves memory behind until `keras.backend.clear_session()` drops the kernels, with or
without a distribution around it. The first lines compare both.
"""

import argparse
import gc
import math
import mmap
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from examples.common import command_line
from tfp_lars import AcceptanceNetwork, MovingAverage, Resampled

tfd = tfp.distributions

NUM_LOOKS = 10
NUM_COMPARED = 100
MOST_GROWTH = 20.0  # MB in the last half of the calls or distributions


def num_graphs():
    """Returns the number of graphs in memory, traced or not."""
    gc.collect()
    return sum(issubclass(type(x), tf.Graph) for x in gc.get_objects())


def resident_megabytes():
    """Returns the resident memory of this process, in MB; NaN where there is no /proc."""
    file = pathlib.Path("/proc/self/statm")
    if not file.exists():
        return float("nan")
    return int(file.read_text().split()[1]) * mmap.PAGESIZE / 1e6


def distributions():
    """Returns a distribution with a fixed Z and one in training, by name."""
    network = AcceptanceNetwork((8,))
    normal = tfd.MultivariateNormalDiag([0.0, 0.0])
    average = MovingAverage(16, seed=1)
    return {
        "function, fixed Z": Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, T=5, normalizer=-0.7),
        "network, moving average": Resampled(normal, network, T=5, normalizer=average),
    }


def use(dist, i):
    """Calls `sample` and `log_prob` with the `i`-th shape, of rank 0 to 2."""
    shape = [[], [i + 1], [i % 7 + 1, i // 7 + 1]][i % 3]
    return dist.log_prob(dist.sample(shape, seed=i))


def watch(count, step, show=None, num_looks=NUM_LOOKS):
    """Calls a function `count` times.

    Args:
      count: Number of calls.
      step: Function of the number of the call.
      show: Function of a line of text, called at each look.
      num_looks: How often to count graphs and memory.

    Returns:
      graphs: Growth of the number of graphs after the first look.
      megabytes: Growth of the resident memory in the last half.
    """
    looks = []
    for i in range(count):
        step(i)
        if (i + 1) % max(count // num_looks, 1) == 0:
            looks.append((num_graphs(), resident_megabytes()))
            if show is not None:
                show(f"  after {i + 1:,}: {looks[-1][0]} graphs, {looks[-1][1]:.0f} MB")
    graphs, megabytes = np.array(looks).T
    return int(graphs.max() - graphs[0]), float(megabytes[-1] - megabytes[len(looks) // 2 - 1])


def use_new(i):
    """Makes two distributions, evaluates and drops them. Each fifth of them also samples."""
    for dist in distributions().values():
        if i % 5 == 0:
            use(dist, i % 30)
        else:
            dist.log_prob(tf.zeros([i % 7 + 1, *dist.event_shape]))
    if i % 20 == 19:
        keras.backend.clear_session()


def use_new_network(i):
    """Makes a network, calls and drops it."""
    AcceptanceNetwork((8,))(tf.zeros([i % 7 + 1, 2]))


def use_new_with_network(i):
    """Makes a distribution with a network, evaluates and drops it."""
    dist = distributions()["network, moving average"]
    dist.log_prob(tf.zeros([i % 7 + 1, 2]))


COMPARISONS = {
    "networks alone": use_new_network,
    "distributions with a network, without `clear_session`": use_new_with_network,
}


def cases():
    """Yields a name and a step function for `watch`."""
    for name, dist in distributions().items():
        yield f"calls, {name}", lambda i, dist=dist: use(dist, i)
    yield "distributions made and dropped", use_new


def main(arguments=None):
    """Runs all cases. Exits with 1 if one of them grows."""
    parser = argparse.ArgumentParser(prog="python -m tests.memory", description=__doc__)
    parser.add_argument(
        "--calls", type=int, default=10**4, help="calls of each distribution (0: none)"
    )
    parser.add_argument(
        "--distributions", type=int, default=10**3, help="distributions to make (0: none)"
    )
    options = parser.parse_args(arguments)
    if math.isnan(resident_megabytes()):
        raise command_line.UserError(
            "there is no /proc/self/statm, so the memory cannot be measured: run this on Linux."
        )
    failed = False
    for name, step in COMPARISONS.items() if options.distributions else ():
        _, megabytes = watch(NUM_COMPARED, step)
        print(
            f"{name}, made and dropped: {2e3 * megabytes / NUM_COMPARED:+.0f} kB each", flush=True
        )
    for name, step in cases():
        count = options.distributions // 2 if step is use_new else options.calls
        if not count:
            continue
        print(f"{name}:", flush=True)
        graphs, megabytes = watch(count, step, lambda text: print(text, flush=True))
        bad = graphs > 0 or megabytes > MOST_GROWTH
        failed |= bad
        print(f"  {'FAILED' if bad else 'ok'}: {graphs:+} graphs, {megabytes:+.1f} MB", flush=True)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    command_line.run(main, interrupted="the lines above are complete")
