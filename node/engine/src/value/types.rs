//! The types that a key may have, beside strings.

pub(crate) mod hash;
