"""The paper's figures of trained models: `python -m examples.paper.figures`."""
