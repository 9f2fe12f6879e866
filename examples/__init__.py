"""Programs that use `tfp_lars` as an outside user would."""
