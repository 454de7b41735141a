"""What Assay uses of torch beyond its public interface: private names, and state of the whole process.

Nothing else in the package does; a test sees to that, and one more says of each name here what breaks without it.
The modules differ in what they load: `ops` hardly anything, `serde` and `dynamo` seconds' worth.

State of the process is changed under `ops.compiling` alone, dynamo's own lock. So no other compilation, of Assay or of
another backend, sees the change, and none puts back a state that it found changed.
"""
