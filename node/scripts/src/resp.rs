//! Writes replies as RESP.

use crate::reply::{ScriptProtocol, ScriptReply};

impl ScriptReply {
    /// The reply in a version of RESP. In RESP2, what only RESP3 has becomes what Redis makes of
    /// it: a map a flat list, a number with a fraction a string.
    pub fn to_resp(&self, protocol: ScriptProtocol) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(protocol == ScriptProtocol::Resp3, &mut out);
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
            ScriptReply::Status(text) => line(out, b'+', text),
            ScriptReply::Error(text) => line(out, b'-', text),
            ScriptReply::Int(number) => line(out, b':', number.to_string().as_bytes()),
            ScriptReply::Bulk(bytes) => bulk(out, bytes),
            ScriptReply::Nil if resp3 => out.extend_from_slice(b"_\r\n"),
            ScriptReply::Nil => out.extend_from_slice(b"$-1\r\n"),
            ScriptReply::Array(replies) => {
                head(out, b'*', replies.len());
                replies.iter().for_each(|reply| reply.put(resp3, out));
            }
            ScriptReply::Set(replies) => {
                head(out, if resp3 { b'~' } else { b'*' }, replies.len());
                replies.iter().for_each(|reply| reply.put(resp3, out));
            }
            ScriptReply::Map(pairs) => {
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
            ScriptReply::Double(number) => {
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
            ScriptReply::Bool(value) if resp3 => line(out, b'#', if *value { b"t" } else { b"f" }),
            ScriptReply::Bool(value) => line(out, b':', if *value { b"1" } else { b"0" }),
            ScriptReply::BigNumber(digits) if resp3 => line(out, b'(', digits.as_bytes()),
            ScriptReply::BigNumber(digits) => bulk(out, digits.as_bytes()),
            ScriptReply::Verbatim { format, text } if resp3 => {
                head(out, b'=', format.len() + 1 + text.len());
                out.extend_from_slice(format.as_bytes());
                out.push(b':');
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            ScriptReply::Verbatim { text, .. } => bulk(out, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_written_in_both_versions() {
        for (reply, resp2, resp3) in [
            (ScriptReply::ok(), "+OK\r\n", "+OK\r\n"),
            (
                ScriptReply::Error("ERR x".into()),
                "-ERR x\r\n",
                "-ERR x\r\n",
            ),
            (ScriptReply::Int(-7), ":-7\r\n", ":-7\r\n"),
            (ScriptReply::bulk("ab"), "$2\r\nab\r\n", "$2\r\nab\r\n"),
            (ScriptReply::Nil, "$-1\r\n", "_\r\n"),
            (
                ScriptReply::Array(vec![ScriptReply::Nil, ScriptReply::Int(1)]),
                "*2\r\n$-1\r\n:1\r\n",
                "*2\r\n_\r\n:1\r\n",
            ),
            (
                ScriptReply::Set(vec![ScriptReply::Int(1)]),
                "*1\r\n:1\r\n",
                "~1\r\n:1\r\n",
            ),
            (
                ScriptReply::Map(vec![(ScriptReply::bulk("k"), ScriptReply::Bool(true))]),
                "*2\r\n$1\r\nk\r\n:1\r\n",
                "%1\r\n$1\r\nk\r\n#t\r\n",
            ),
            (ScriptReply::Double(0.5), "$3\r\n0.5\r\n", ",0.5\r\n"),
            (
                ScriptReply::Double(f64::NEG_INFINITY),
                "$4\r\n-inf\r\n",
                ",-inf\r\n",
            ),
            (ScriptReply::Bool(false), ":0\r\n", "#f\r\n"),
            (
                ScriptReply::BigNumber("12".to_owned()),
                "$2\r\n12\r\n",
                "(12\r\n",
            ),
            (
                ScriptReply::Verbatim {
                    format: "txt".to_owned(),
                    text: "hi".into(),
                },
                "$2\r\nhi\r\n",
                "=6\r\ntxt:hi\r\n",
            ),
        ] {
            let written = |protocol| String::from_utf8(reply.to_resp(protocol)).unwrap();
            assert_eq!(
                (
                    &*written(ScriptProtocol::Resp2),
                    &*written(ScriptProtocol::Resp3)
                ),
                (resp2, resp3)
            );
        }
    }
}
