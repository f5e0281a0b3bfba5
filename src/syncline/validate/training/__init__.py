"""Published training runs: read, predicted, compared, and fitted to."""

from __future__ import annotations

from syncline.validate.training.validate import TrainingValidation, validate_training

__all__ = ["TrainingValidation", "validate_training"]
