"""Fixed seeds, and an option to vary them."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

from tests.seeding import set_random_seed


def pytest_addoption(parser):
    parser.addoption(
        "--vary-seed",
        type=int,
        default=0,
        metavar="N",
        help="offset added to the seeds of all tests (default: 0)",
    )


@pytest.fixture
def seed(request):
    """Seed for a statistical test."""
    return 20_190_416 + request.config.getoption("--vary-seed")


@pytest.fixture(autouse=True)
def _seed_everything(request):
    """Makes initial weights independent of the tests that ran before."""
    set_random_seed(1 + request.config.getoption("--vary-seed"))
