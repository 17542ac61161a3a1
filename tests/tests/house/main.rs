//! What the sources and the pages must look like.

mod circles;
mod citations;
mod classes;
mod crates;
mod lengths;
mod made;
mod node;
mod pages;
mod rooms;
mod words;
