"""Ways to hold compute and run batches on it."""
