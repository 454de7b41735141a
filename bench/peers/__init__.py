"""Services of bench/jobs.py: one file for each contest, one function for each engine, which imports it when called."""
