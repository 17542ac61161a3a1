//! What scripts can do, and what they cannot, in one program. As programs of their own, these files
//! would each be linked with Lua.

mod common;
mod faults;
mod fuzz;
mod limits;
mod redis;
mod sandbox;
mod time;
