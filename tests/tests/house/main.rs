//! What the sources must look like.

mod circles;
mod citations;
mod classes;
mod node;
mod rooms;
