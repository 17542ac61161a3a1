//! A command that is encoded once. Only the digits of its key change from one operation to the
//! next.

use super::super::keys::{DIGITS_AT, FIRST, write_digits};

const KEY: &str = "{key}";
const VALUE: &str = "{value}";

/// An encoded command with a place for the key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RespCommand {
    /// The bytes, with the first key.
    bytes: Vec<u8>,
    digits_at: Vec<usize>,
    /// How many copies the `WAIT` that follows must report; `None` if none follows.
    wait: Option<u16>,
}

impl RespCommand {
    /// Parses words with `{key}` and `{value}`, for example `SET {key} {value}`.
    ///
    /// # Errors
    /// The words contain no `{key}`.
    pub(super) fn parse(template: &str, value: &[u8]) -> Result<Self, String> {
        let words: Vec<&str> = template.split_whitespace().collect();
        if !template.contains(KEY) {
            return Err(format!(
                "`{template}` has no key: write {KEY} where the key belongs, as in `GET {KEY}`"
            ));
        }
        let mut command = Self {
            bytes: format!("*{}\r\n", words.len()).into_bytes(),
            digits_at: Vec::new(),
            wait: None,
        };
        words.into_iter().for_each(|word| command.push(word, value));
        Ok(command)
    }

    /// Appends `WAIT copies 0`: an operation is done when both commands are answered.
    pub(super) fn then_wait(&mut self, copies: u16) {
        let copies_text = copies.to_string();
        self.bytes.extend_from_slice(
            format!(
                "*3\r\n$4\r\nWAIT\r\n${}\r\n{copies_text}\r\n$1\r\n0\r\n",
                copies_text.len()
            )
            .as_bytes(),
        );
        self.wait = Some(copies);
    }

    fn push(&mut self, word: &str, value: &[u8]) {
        let (mut rest, mut bytes, mut digits_at) = (word, Vec::new(), Vec::new());
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix(KEY) {
                digits_at.push(bytes.len() + DIGITS_AT);
                bytes.extend_from_slice(FIRST);
                rest = after;
            } else if let Some(after) = rest.strip_prefix(VALUE) {
                bytes.extend_from_slice(value);
                rest = after;
            } else {
                let next = rest
                    .char_indices()
                    .skip(1)
                    .find(|(_, c)| *c == '{')
                    .map_or(rest.len(), |(at, _)| at);
                bytes.extend_from_slice(&rest.as_bytes()[..next]);
                rest = &rest[next..];
            }
        }
        self.bytes
            .extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
        self.digits_at
            .extend(digits_at.iter().map(|at| self.bytes.len() + at));
        self.bytes.extend_from_slice(&bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// How many copies `WAIT` must report; `None` if it does not follow.
    pub(super) fn wait(&self) -> Option<u16> {
        self.wait
    }

    /// Appends the command with this key to `out`.
    pub(super) fn write(&self, key: u64, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&self.bytes);
        for at in &self.digits_at {
            write_digits(
                key,
                &mut out[begin + at..begin + at + FIRST.len() - DIGITS_AT],
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(command: &RespCommand, key: u64) -> String {
        let mut out = b"before".to_vec();
        command.write(key, &mut out);
        String::from_utf8(out)
            .expect("text")
            .strip_prefix("before")
            .expect("appended")
            .replace("\r\n", " ")
    }

    #[test]
    fn keys_and_values_stand_where_the_words_say() {
        let set = RespCommand::parse("SET {key} {value}", b"abc").expect("a command");
        assert_eq!(encoded(&set, 42), "*3 $3 SET $16 key:000000000042 $3 abc ");
        assert_eq!(encoded(&set, 7), "*3 $3 SET $16 key:000000000007 $3 abc ");
        let own = RespCommand::parse(" DM.PUT  bench {a}:{key}.{key} x{value}x", b"v")
            .expect("a command");
        assert_eq!(
            encoded(&own, 12),
            "*4 $6 DM.PUT $5 bench $37 {a}:key:000000000012.key:000000000012 $3 xvx "
        );
    }

    #[test]
    fn wait_follows_on_the_same_connection() {
        let mut set = RespCommand::parse("SET {key} {value}", b"").expect("a command");
        set.then_wait(1);
        assert_eq!(
            encoded(&set, 1),
            "*3 $3 SET $16 key:000000000001 $0  *3 $4 WAIT $1 1 $1 0 "
        );
        assert_eq!(set.wait(), Some(1));
    }

    #[test]
    fn a_command_without_a_key_is_refused() {
        assert!(RespCommand::parse("PING", b"").is_err_and(|why| why.contains("{key}")));
    }
}
