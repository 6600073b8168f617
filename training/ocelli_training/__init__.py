"""Training for Ocelli: distillation of SAM3's image backbone. Running Ocelli never needs it."""

__version__ = "0.1.0"
