//! Counts replies as their bytes arrive, and keeps none of them: of a value, only its presence
//! counts.

/// Limit on the bytes of a reply, and on the elements of an array.
const LENGTH_MAX: i64 = 1 << 30;
/// Bytes of an error that are kept.
const ERROR_BYTES_MAX: usize = 1024;

/// A complete reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScannedReply {
    /// A string or an array.
    Value,
    /// Nil.
    Nil,
    /// A number.
    Integer(i64),
    /// An error. `Scanner::error` returns its text until more bytes are read.
    Error,
}

/// The bytes are not a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedReply;

/// Finds the ends of replies in a stream of RESP2.
#[derive(Debug)]
pub(super) struct Scanner {
    state: ScanState,
    /// Elements, of all nested arrays, that the reply still lacks.
    left: i64,
    /// The kind of the reply, known from its first element.
    whole: Option<ScannedReply>,
    error: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum ScanState {
    Kind,
    /// Text until the end of the line.
    Text(ScannedReply),
    /// The text of an error.
    Error,
    Number {
        kind: u8,
        value: i64,
        negative: bool,
    },
    /// Bytes of a string, with its line end.
    Bytes(usize),
}

impl Scanner {
    pub(super) fn new() -> Self {
        Self {
            state: ScanState::Kind,
            left: 1,
            whole: None,
            error: Vec::new(),
        }
    }

    /// The text of the error that `next` has just returned.
    pub(super) fn error(&self) -> String {
        String::from_utf8_lossy(&self.error).trim_end().to_owned()
    }

    /// Takes bytes off `input` until a reply is complete or no byte is left.
    pub(super) fn next(
        &mut self,
        input: &mut &[u8],
    ) -> Result<Option<ScannedReply>, MalformedReply> {
        while let Some(&first) = input.first() {
            let element = match &mut self.state {
                ScanState::Kind => {
                    *input = &input[1..];
                    self.state = begin(first)?;
                    if let ScanState::Error = self.state {
                        self.error.clear();
                    }
                    continue;
                }
                ScanState::Bytes(left) => {
                    let taken = input.len().min(*left);
                    *input = &input[taken..];
                    *left -= taken;
                    if *left > 0 {
                        return Ok(None);
                    }
                    ScannedReply::Value
                }
                ScanState::Text(reply) => {
                    let reply = *reply;
                    match line(input) {
                        (_, true) => reply,
                        (_, false) => return Ok(None),
                    }
                }
                ScanState::Error => {
                    let (text, ended) = line(input);
                    let room = ERROR_BYTES_MAX.saturating_sub(self.error.len());
                    self.error.extend_from_slice(&text[..text.len().min(room)]);
                    if !ended {
                        return Ok(None);
                    }
                    ScannedReply::Error
                }
                ScanState::Number {
                    kind,
                    value,
                    negative,
                } => {
                    let (digits, ended) = line(input);
                    for &digit in digits {
                        match digit {
                            b'0'..=b'9' => {
                                *value = value
                                    .checked_mul(10)
                                    .and_then(|v| v.checked_add((digit - b'0').into()))
                                    .ok_or(MalformedReply)?
                            }
                            b'-' => *negative = true,
                            b'\r' | b'+' => {}
                            _ => return Err(MalformedReply),
                        }
                    }
                    if !ended {
                        return Ok(None);
                    }
                    let (kind, value) = (*kind, if *negative { -*value } else { *value });
                    match self.number(kind, value)? {
                        Some(element) => element,
                        None => continue,
                    }
                }
            };
            self.state = ScanState::Kind;
            let whole = *self.whole.get_or_insert(element);
            self.left -= 1;
            if self.left == 0 {
                (self.left, self.whole) = (1, None);
                return Ok(Some(whole));
            }
        }
        Ok(None)
    }

    /// What a number in a header means; `None` if more bytes belong to the reply.
    fn number(&mut self, kind: u8, value: i64) -> Result<Option<ScannedReply>, MalformedReply> {
        match (kind, value) {
            (b':', _) => return Ok(Some(ScannedReply::Integer(value))),
            (_, ..0) => return Ok(Some(ScannedReply::Nil)),
            (_, LENGTH_MAX..) => return Err(MalformedReply),
            (b'$', _) => self.state = ScanState::Bytes(value as usize + 2),
            (_, 0) => return Ok(Some(ScannedReply::Value)),
            (_, _) => {
                self.whole.get_or_insert(ScannedReply::Value);
                // The array itself is one of the elements that were lacking.
                self.left = self.left.checked_add(value - 1).ok_or(MalformedReply)?;
                self.state = ScanState::Kind;
            }
        }
        Ok(None)
    }
}

fn begin(kind: u8) -> Result<ScanState, MalformedReply> {
    match kind {
        b'+' => Ok(ScanState::Text(ScannedReply::Value)),
        b'_' => Ok(ScanState::Text(ScannedReply::Nil)),
        b'-' => Ok(ScanState::Error),
        b':' | b'$' | b'*' => Ok(ScanState::Number {
            kind,
            value: 0,
            negative: false,
        }),
        _ => Err(MalformedReply),
    }
}

/// Takes the rest of a line off `input`. The flag says whether the line has ended.
fn line<'a>(input: &mut &'a [u8]) -> (&'a [u8], bool) {
    let all = *input;
    match all.iter().position(|&b| b == b'\n') {
        Some(end) => {
            *input = &all[end + 1..];
            (&all[..end], true)
        }
        None => {
            *input = &[];
            (all, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Vec<(ScannedReply, String)>, MalformedReply> {
        let (mut scanner, mut replies) = (Scanner::new(), Vec::new());
        for mut piece in pieces {
            while let Some(reply) = scanner.next(&mut piece)? {
                replies.push((
                    reply,
                    if reply == ScannedReply::Error {
                        scanner.error()
                    } else {
                        String::new()
                    },
                ));
            }
            assert!(piece.is_empty());
        }
        Ok(replies)
    }

    fn kinds(stream: &[u8]) -> Vec<ScannedReply> {
        scan([stream])
            .expect("replies")
            .into_iter()
            .map(|(reply, _)| reply)
            .collect()
    }

    #[test]
    fn every_kind_of_reply_is_recognized() {
        assert_eq!(kinds(b"+OK\r\n"), [ScannedReply::Value]);
        assert_eq!(
            kinds(b":-12\r\n:7\r\n"),
            [ScannedReply::Integer(-12), ScannedReply::Integer(7)]
        );
        assert_eq!(
            kinds(b"$3\r\na\r\n\r\n$0\r\n\r\n"),
            [ScannedReply::Value, ScannedReply::Value]
        );
        assert_eq!(
            kinds(b"$-1\r\n*-1\r\n_\r\n"),
            [ScannedReply::Nil, ScannedReply::Nil, ScannedReply::Nil]
        );
        assert_eq!(
            scan([&b"-MOVED 7 h:1\r\n"[..]]),
            Ok(vec![(ScannedReply::Error, "MOVED 7 h:1".to_owned())])
        );
    }

    #[test]
    fn an_array_of_anything_is_one_reply() {
        assert_eq!(
            kinds(b"*0\r\n+OK\r\n"),
            [ScannedReply::Value, ScannedReply::Value]
        );
        assert_eq!(
            kinds(b"*3\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n-ERR no\r\n$-1\r\n"),
            [ScannedReply::Value, ScannedReply::Nil]
        );
        assert_eq!(kinds(b"*2\r\n:1\r\n"), []);
    }

    #[test]
    fn malformed_replies_are_refused() {
        for wrong in [
            &b"HTTP/1.1 400\r\n"[..],
            b"$x\r\n",
            b"$99999999999999999999\r\n",
            b"$9999999999\r\n",
            b"\r\n",
        ] {
            assert_eq!(
                scan([wrong]),
                Err(MalformedReply),
                "{}",
                wrong.escape_ascii()
            );
        }
    }

    #[test]
    fn long_errors_are_cut() {
        let stream = format!("-ERR {}\r\n+OK\r\n", "x".repeat(5000));
        let replies = scan([stream.as_bytes()]).expect("replies");
        assert_eq!((replies.len(), replies[0].1.len()), (2, ERROR_BYTES_MAX));
    }

    /// One encoded reply, and its kind.
    fn reply() -> impl Strategy<Value = (Vec<u8>, ScannedReply)> {
        let leaf = prop_oneof![
            "[a-z ]{0,20}".prop_map(|s| (format!("+{s}\r\n").into_bytes(), ScannedReply::Value)),
            "[A-Z]{1,8} [a-z ]{0,20}"
                .prop_map(|s| (format!("-{s}\r\n").into_bytes(), ScannedReply::Error)),
            any::<i32>().prop_map(|n| (
                format!(":{n}\r\n").into_bytes(),
                ScannedReply::Integer(n.into())
            )),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| {
                let mut encoded = format!("${}\r\n", bytes.len()).into_bytes();
                encoded.extend(bytes);
                encoded.extend(b"\r\n");
                (encoded, ScannedReply::Value)
            }),
            Just((b"$-1\r\n".to_vec(), ScannedReply::Nil)),
            Just((b"*-1\r\n".to_vec(), ScannedReply::Nil)),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            proptest::collection::vec(inner, 0..4).prop_map(|elements| {
                let mut encoded = format!("*{}\r\n", elements.len()).into_bytes();
                elements.iter().for_each(|(bytes, _)| encoded.extend(bytes));
                (encoded, ScannedReply::Value)
            })
        })
    }

    proptest! {
        #[test]
        fn splitting_a_stream_does_not_change_its_replies(
            replies in proptest::collection::vec(reply(), 1..12),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20),
        ) {
            let stream: Vec<u8> = replies
                .iter()
                .flat_map(|(bytes, _)| bytes.clone())
                .collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let split = scan(cuts.windows(2).map(|w| &stream[w[0]..w[1]]));
            prop_assert_eq!(&split, &scan([&stream[..]]));
            let told: Vec<ScannedReply> = split
                .expect("replies")
                .into_iter()
                .map(|(reply, _)| reply)
                .collect();
            prop_assert_eq!(
                told,
                replies
                    .into_iter()
                    .map(|(_, reply)| reply)
                    .collect::<Vec<_>>()
            );
        }

        #[test]
        fn any_bytes_are_replies_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = scan([&bytes[..]]);
        }
    }
}
