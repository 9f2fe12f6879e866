"""Fixed seeds, and an option to see how lucky they are."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import pytest
import tf_keras


def pytest_addoption(parser):
    parser.addoption(
        "--vary-seed",
        type=int,
        default=0,
        metavar="N",
        help="added to the seed of every test that takes one; 0 is the seed that is kept",
    )


@pytest.fixture
def seed(request):
    """The seed of a statistical test."""
    return 20_190_416 + request.config.getoption("--vary-seed")


@pytest.fixture(autouse=True)
def _seed_everything(request):
    """Networks start from the same weights, whichever tests run before."""
    for library in (keras, tf_keras):  # once seeded, tf_keras no longer follows the other's seeds
        library.utils.set_random_seed(1 + request.config.getoption("--vary-seed"))
