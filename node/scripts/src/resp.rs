//! Writes replies as RESP.

use crate::reply::{Protocol, Reply};

impl Reply {
    /// The reply in a version of RESP. In RESP2, what only RESP3 has becomes what Redis makes of
    /// it: a map a flat list, a number with a fraction a string.
    pub fn to_resp(&self, protocol: Protocol) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(protocol == Protocol::Resp3, &mut out);
        out
    }

    fn put(&self, resp3: bool, out: &mut Vec<u8>) {
        let line = |out: &mut Vec<u8>, kind: u8, text: &[u8]| {
            out.push(kind);
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        };
        let head = |out: &mut Vec<u8>, kind: u8, count: usize| {
            line(out, kind, count.to_string().as_bytes());
        };
        let bulk = |out: &mut Vec<u8>, bytes: &[u8]| {
            head(out, b'$', bytes.len());
            out.extend_from_slice(bytes);
            out.extend_from_slice(b"\r\n");
        };
        match self {
            Reply::Status(text) => line(out, b'+', text),
            Reply::Error(text) => line(out, b'-', text),
            Reply::Int(number) => line(out, b':', number.to_string().as_bytes()),
            Reply::Bulk(bytes) => bulk(out, bytes),
            Reply::Nil if resp3 => out.extend_from_slice(b"_\r\n"),
            Reply::Nil => out.extend_from_slice(b"$-1\r\n"),
            Reply::Array(replies) => {
                head(out, b'*', replies.len());
                replies.iter().for_each(|reply| reply.put(resp3, out));
            }
            Reply::Set(replies) => {
                head(out, if resp3 { b'~' } else { b'*' }, replies.len());
                replies.iter().for_each(|reply| reply.put(resp3, out));
            }
            Reply::Map(pairs) => {
                if resp3 {
                    head(out, b'%', pairs.len());
                } else {
                    head(out, b'*', pairs.len() * 2);
                }
                for (key, value) in pairs {
                    key.put(resp3, out);
                    value.put(resp3, out);
                }
            }
            Reply::Double(number) => {
                let text = match number {
                    _ if number.is_nan() => "nan".to_owned(),
                    _ if number.is_infinite() && *number > 0.0 => "inf".to_owned(),
                    _ if number.is_infinite() => "-inf".to_owned(),
                    _ => crate::number::to_text(*number, 17),
                };
                if resp3 {
                    line(out, b',', text.as_bytes());
                } else {
                    bulk(out, text.as_bytes());
                }
            }
            Reply::Bool(value) if resp3 => line(out, b'#', if *value { b"t" } else { b"f" }),
            Reply::Bool(value) => line(out, b':', if *value { b"1" } else { b"0" }),
            Reply::BigNumber(digits) if resp3 => line(out, b'(', digits.as_bytes()),
            Reply::BigNumber(digits) => bulk(out, digits.as_bytes()),
            Reply::Verbatim { format, text } if resp3 => {
                head(out, b'=', format.len() + 1 + text.len());
                out.extend_from_slice(format.as_bytes());
                out.push(b':');
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Reply::Verbatim { text, .. } => bulk(out, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_written_in_both_versions() {
        for (reply, resp2, resp3) in [
            (Reply::ok(), "+OK\r\n", "+OK\r\n"),
            (Reply::Error("ERR x".into()), "-ERR x\r\n", "-ERR x\r\n"),
            (Reply::Int(-7), ":-7\r\n", ":-7\r\n"),
            (Reply::bulk("ab"), "$2\r\nab\r\n", "$2\r\nab\r\n"),
            (Reply::Nil, "$-1\r\n", "_\r\n"),
            (
                Reply::Array(vec![Reply::Nil, Reply::Int(1)]),
                "*2\r\n$-1\r\n:1\r\n",
                "*2\r\n_\r\n:1\r\n",
            ),
            (
                Reply::Set(vec![Reply::Int(1)]),
                "*1\r\n:1\r\n",
                "~1\r\n:1\r\n",
            ),
            (
                Reply::Map(vec![(Reply::bulk("k"), Reply::Bool(true))]),
                "*2\r\n$1\r\nk\r\n:1\r\n",
                "%1\r\n$1\r\nk\r\n#t\r\n",
            ),
            (Reply::Double(0.5), "$3\r\n0.5\r\n", ",0.5\r\n"),
            (
                Reply::Double(f64::NEG_INFINITY),
                "$4\r\n-inf\r\n",
                ",-inf\r\n",
            ),
            (Reply::Bool(false), ":0\r\n", "#f\r\n"),
            (Reply::BigNumber("12".to_owned()), "$2\r\n12\r\n", "(12\r\n"),
            (
                Reply::Verbatim {
                    format: "txt".to_owned(),
                    text: "hi".into(),
                },
                "$2\r\nhi\r\n",
                "=6\r\ntxt:hi\r\n",
            ),
        ] {
            let written = |protocol| String::from_utf8(reply.to_resp(protocol)).unwrap();
            assert_eq!(
                (&*written(Protocol::Resp2), &*written(Protocol::Resp3)),
                (resp2, resp3)
            );
        }
    }
}
