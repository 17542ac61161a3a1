//! What the sources must look like.

mod circles;
mod citations;
mod classes;
mod lengths;
mod node;
mod rooms;
