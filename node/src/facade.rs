//! What Doyen has, under the names of other libraries: for a program that comes from one of them
//! and wants to change as little as possible.

pub mod moka;
