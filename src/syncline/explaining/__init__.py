"""A measured step: its account, its collectives, the overlap it lost, and what each change would save."""

from syncline.explaining.explain import Explanation, explain_recordings

__all__ = ["Explanation", "explain_recordings"]
