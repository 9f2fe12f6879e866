"""Fixed seeds and order, and an option to vary them."""

import gc
import os
import pathlib
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if "PYTEST_XDIST_WORKER" in os.environ:  # then the other cores have their own processes
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import pytest
from hypothesis import HealthCheck, Phase, settings

# The same examples in each run. `varied` has others for each `--hypothesis-seed`, and `soak` has
# more of them, new in each run.
settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=30,
    phases=[Phase.explicit, Phase.generate],  # shrinking a failure would take minutes
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("varied", settings.get_profile("default"), derandomize=False)
settings.register_profile(
    "soak", settings.get_profile("default"), derandomize=False, max_examples=1000, print_blob=True
)
settings.load_profile("default")


TESTS = pathlib.Path(__file__).parent
# Files that take longest. They come first, so that no process of xdist waits for one at the end.
LONGEST = [
    "examples/vae/test_training.py",
    "test_tutorials.py",
    "library/test_conformance.py",
    "library/test_keras_layer.py",
    "examples/vae/test_distributed.py",
    "examples/paper/test_runner.py",
    "library/test_properties.py",
    "library/test_fit_training.py",
    "library/normalizer/test_over_replicas.py",
    "examples/test_faults.py",
]


def pytest_addoption(parser):
    parser.addoption(
        "--vary-seed",
        type=int,
        default=0,
        metavar="N",
        help="offset added to the seeds of all tests, which also shuffles them (default: 0)",
    )


@pytest.fixture
def seed(request):
    """Seed for a statistical test."""
    return 20_190_416 + request.config.getoption("--vary-seed")


def _seed_everything(config):
    # Not at the top: it imports TensorFlow, which the main process of xdist does not need.
    from tests.seeding import set_random_seed

    set_random_seed(1 + config.getoption("--vary-seed"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Makes the weights in shared fixtures independent of the tests that ran before."""
    _seed_everything(item.config)


@pytest.fixture(autouse=True)
def _seed_test(request):
    """Makes the weights in a test independent of the fixtures that were made for it."""
    _seed_everything(request.config)


@pytest.fixture(autouse=True)
def _no_determinism_afterwards():
    """Undoes what the trainings of the examples enable for the whole process."""
    yield
    from tensorflow.python.framework import config

    config.disable_op_determinism()


def pytest_collection_finish(session):
    """Spares the garbage collector the objects of TensorFlow's modules, which stay."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # pytest then puts tests with the same shared fixture together
def pytest_collection_modifyitems(config, items):
    """Puts long files first or, if the seed is varied, shuffles files and tests within files."""
    files = {TESTS / name: [] for name in LONGEST}
    for item in items:
        files.setdefault(item.path, []).append(item)
    groups = list(files.values())
    number = config.getoption("--vary-seed")
    if number != 0:
        rng = random.Random(number)  # the same order in all processes of xdist
        for group in (groups, *groups):
            rng.shuffle(group)
    items[:] = [item for group in groups for item in group]
