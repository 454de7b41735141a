"""Contests with other engines: one file for each, one function for each engine, which imports it when called."""
