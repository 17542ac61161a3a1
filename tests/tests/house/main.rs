//! What the sources must look like.

mod citations;
mod node;
mod rooms;
