//! What the sources must look like.

mod citations;
mod rooms;
