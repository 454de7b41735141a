"""The sweep: every model of the zoo on every target, each in a process of its own; what comes out is records."""
