"""Places where a sweep can be kept."""
