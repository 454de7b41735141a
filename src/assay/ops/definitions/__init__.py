"""The definitions of the core ops, one file a family."""
