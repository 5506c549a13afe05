"""Penstock keeps Spark tables fresh by doing only the work that changed."""
