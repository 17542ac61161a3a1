//! The protocol: whole clusters in virtual time, and the bytes that travel.

mod simulation;
mod wire;

// As in the binary, because a simulation allocates much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
