//! Texts with which [`Commands`](crate::Commands) refuses a command of a script, as Redis 7 words
//! them.

/// The command does not exist.
pub const UNKNOWN_COMMAND: &str = "ERR Unknown Redis command called from script";
/// The command has too many or too few arguments.
pub const WRONG_ARITY: &str = "ERR Wrong number of args calling Redis command from script";
/// The command may not be called by scripts, such as `SUBSCRIBE`.
pub const NOT_ALLOWED: &str = "ERR This Redis command is not allowed from script";
/// The script was started by `EVAL_RO` or has the flag `no-writes`, and the command writes.
pub const READ_ONLY: &str = "ERR Write commands are not allowed from read-only scripts.";
/// A script without the flag `no-writes` was started by `EVAL_RO` or `EVALSHA_RO`.
pub const NOT_READ_ONLY: &str = "ERR Can not execute a script with write flag using *_ro command.";
/// The script has the flag `no-cluster`, and the server is a cluster.
pub const NO_CLUSTER: &str = "ERR Can not run script on cluster, 'no-cluster' flag is set.";
/// A command used a key of another slot than the script's keys.
pub const CROSS_SLOT: &str =
    "ERR Script attempted to access keys that do not hash to the same slot";
/// No script has the digest that was given to `EVALSHA`.
pub const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
/// The text of a script is too large. (Redis has no such limit.)
pub const LARGE_BODY: &str = "ERR the script's text is too large: at most 1048576 bytes; give it \
    data as arguments (ARGV)";
