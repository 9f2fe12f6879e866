"""The paper's tables and figures: `python -m examples.paper`."""
