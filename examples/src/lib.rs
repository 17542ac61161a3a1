//! Programs to copy. Each is one file in `src/bin`.
