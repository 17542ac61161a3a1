//! Transactions, which are not there yet: `MULTI` is refused, and so is all that follows it until
//! the client ends the transaction.
//!
//! Clients send `MULTI`, the commands and `EXEC` in one go, before they read that `MULTI` was
//! refused. If those commands were executed, the client would report a failed transaction that had
//! happened, and a retry would apply it twice.

use super::*;

const MULTI_REFUSED: &str =
    "ERR MULTI is not supported yet: send the commands without MULTI and EXEC, or end with DISCARD";
const WATCH_REFUSED: &str = "ERR WATCH is not supported yet, because transactions are not";
const IN_REFUSED: &str = "ERR not executed: MULTI was refused on this connection, and transactions are not supported yet; send DISCARD or EXEC to go on";
const EXEC_REFUSED: &str = "EXECABORT Transaction discarded because of previous errors: transactions are not supported yet.";

fn is(args: Args<'_>, name: &str) -> bool {
    args.get(0).eq_ignore_ascii_case(name.as_bytes())
}

impl Session {
    /// Answers what belongs to a refused transaction, while the session is in one; false: the
    /// command runs as any other.
    #[cold]
    pub(super) fn refuse_in_transaction(&mut self, args: Args<'_>) -> bool {
        if is(args, "QUIT") || is(args, "RESET") {
            // Both end it. With a wrong number of arguments they do nothing, as in Redis.
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

    /// Answers what begins or ends a transaction; false: it is another command. Checked only for
    /// what is no known command, so that known ones do not pay for it.
    #[cold]
    pub(super) fn refuse_transaction(&mut self, args: Args<'_>) -> bool {
        let text = if !self.authenticated {
            return false;
        } else if is(args, "MULTI") {
            // Also with a wrong number of arguments: what follows was meant to be one transaction.
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
