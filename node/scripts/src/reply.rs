//! What commands answer to a script, and what a script answers to its client.

use bytes::Bytes;

/// A reply in the shapes of RESP, in both directions: from a command to the script, and from the
/// script to its client.
///
/// The shapes of RESP3 travel only if a script asked for them with `redis.setresp(3)`.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptReply {
    /// A simple string, such as `OK`: bytes without a line break.
    Status(Bytes),
    /// An error with its code first, such as `WRONGTYPE Operation against a key...`: bytes without
    /// a line break.
    Error(Bytes),
    /// An integer.
    Int(i64),
    /// A string of bytes.
    Bulk(Bytes),
    /// The missing value: a null string or array in RESP2, null in RESP3.
    Nil,
    /// A list of replies.
    Array(Vec<ScriptReply>),
    /// RESP3: pairs of a key and a value. A client with RESP2 gets them as one flat array.
    Map(Vec<(ScriptReply, ScriptReply)>),
    /// RESP3: members in no order. A client with RESP2 gets an array.
    Set(Vec<ScriptReply>),
    /// RESP3: a number with a fraction. A client with RESP2 gets a string.
    Double(f64),
    /// RESP3: true or false. A client with RESP2 gets 1 or 0.
    Bool(bool),
    /// RESP3: an integer of any size, as decimal digits.
    BigNumber(String),
    /// RESP3: a text and the three letters of its format, such as `txt`.
    Verbatim {
        /// The format.
        format: String,
        /// The text.
        text: Bytes,
    },
}

impl ScriptReply {
    /// The status `OK`.
    pub fn ok() -> ScriptReply {
        ScriptReply::Status(Bytes::from_static(b"OK"))
    }

    /// A string of bytes.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> ScriptReply {
        ScriptReply::Bulk(Bytes::copy_from_slice(bytes.as_ref()))
    }
}

/// The version of RESP in which a script gets the replies of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScriptProtocol {
    /// What every script begins with.
    #[default]
    Resp2,
    /// After `redis.setresp(3)`.
    Resp3,
}

/// What runs the commands of a script. The caller of [`Interpreter::run`] implements it.
///
/// [`Interpreter::run`]: crate::Interpreter::run
pub trait Commands {
    /// Runs one command of `redis.call` or `redis.pcall`, and returns its reply.
    ///
    /// `args` has the name of the command and its arguments, at least one. A command that scripts
    /// may not call, or that does not exist, answers with an error: [`errors`] has Redis's texts.
    /// The reply has the shape that the command has in `protocol`.
    ///
    /// [`errors`]: crate::errors
    fn call(&mut self, args: Vec<Bytes>, protocol: ScriptProtocol) -> ScriptReply;

    /// The run begins again: everything that commands changed since it began is taken back.
    fn restart(&mut self);

    /// Whether the script's caller may run this command (`redis.acl_check_cmd`), which is not run.
    /// `None`: there is no such command.
    ///
    /// `args` has the name of the command and its arguments, at least one.
    fn may_call(&mut self, args: &[Bytes]) -> Option<bool>;
}
