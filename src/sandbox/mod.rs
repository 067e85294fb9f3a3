//! Confinement of the commands that tools run.
