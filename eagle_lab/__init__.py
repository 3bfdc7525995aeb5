"""eagle_lab: train EAGLE-3 draft heads from a Hydra config and prove how well they serve."""

__version__ = "0.1.0"
