"""What every compiled target needs, whatever its kernels are written in."""
