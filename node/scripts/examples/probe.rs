#[path = "../tests/common/mod.rs"]
mod common;
use common::run_with;
use doyen_scripts::{Interpreter, Limits};
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let body = std::fs::read_to_string(path).unwrap();
    std::thread::spawn(move || {
        let mut interpreter = Interpreter::default();
        for _ in 0..3 {
            println!("{:?}", run_with(&mut interpreter, &body, &["a", "1"], &Limits { instructions: 50_000_000, memory_bytes: 64 << 20, ..Limits::default() }));
            println!("{:?}", run_with(&mut interpreter, "local t = {} for i = 1, 1000 do t[i] = {pcall(string.rep, {})} end collectgarbage() return {redis.call('ECHO', #KEYS), math.random(100)}", &["a", "1"], &Limits::default()));
        }
    }).join().unwrap();
}
