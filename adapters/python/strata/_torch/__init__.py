"""The parts of strata.torch: where the C library and the shim are found, and how a shim is compiled."""
