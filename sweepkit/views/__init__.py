"""Ways to look at a sweep."""
