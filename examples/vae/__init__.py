"""The paper's VAEs: `python -m examples.vae.train`, `python -m examples.vae.evaluate`."""
