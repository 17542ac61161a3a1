//! Transactions are not supported yet. `MULTI` is refused, and so is every command after it until
//! the client ends the transaction.
//!
//! Clients send `MULTI`, the commands and `EXEC` in one go, before they read that `MULTI` was
//! refused. If those commands were executed, the client would report a failed transaction that had
//! happened, and a retry would apply it twice.

use super::*;

const MULTI_REFUSED: &str =
    "ERR MULTI is not supported yet: send DISCARD, then the commands without MULTI and EXEC";
const WATCH_REFUSED: &str = "ERR WATCH is not supported yet, because transactions are not: \
    send the commands without WATCH";
const IN_REFUSED: &str = "ERR not executed, because MULTI was refused on this connection: \
    send DISCARD, then the command again";
const EXEC_REFUSED: &str = "EXECABORT Transaction discarded because of previous errors: \
    transactions are not supported yet.";

fn is(args: Args<'_>, name: &str) -> bool {
    args.get(0).eq_ignore_ascii_case(name.as_bytes())
}

impl Session {
    /// Answers the commands of a refused transaction, while the session is in one. False: the
    /// command runs as any other.
    #[cold]
    pub(super) fn refuse_in_transaction(&mut self, args: Args<'_>) -> bool {
        if is(args, "QUIT") || is(args, "RESET") {
            // Both end the transaction. With a wrong number of arguments they do nothing, as in
            // Redis.
            return false;
        }
        let exec = is(args, "EXEC");
        if args.len() == 1 && (exec || is(args, "DISCARD")) {
            self.in_refused_transaction = false;
            self.answer(|e| {
                if exec {
                    e.error(EXEC_REFUSED)
                } else {
                    e.simple("OK")
                }
            });
        } else if is(args, "MULTI") {
            self.answer(|e| e.error("ERR MULTI calls can not be nested"));
        } else {
            self.answer(|e| e.error(IN_REFUSED));
        }
        true
    }

    /// Answers commands that begin or end a transaction. False: it is another command. Only unknown
    /// commands are checked, so that known ones do not pay for it.
    #[cold]
    pub(super) fn refuse_transaction(&mut self, args: Args<'_>) -> bool {
        let text = if !self.authenticated {
            return false;
        } else if is(args, "MULTI") {
            // This includes a wrong number of arguments: the following commands were meant as one
            // transaction.
            self.in_refused_transaction = true;
            MULTI_REFUSED
        } else if is(args, "WATCH") {
            WATCH_REFUSED
        } else if is(args, "EXEC") {
            "ERR EXEC without MULTI"
        } else if is(args, "DISCARD") {
            "ERR DISCARD without MULTI"
        } else {
            return false;
        };
        self.answer(|e| e.error(text));
        true
    }
}
