//! Keys from a file. Each line has a key, its bytes, and its number of operations.

use super::keys::{KEYS_MAX, SimulatedKeys};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The longest line: a key of up to 64 KiB, and two numbers.
const LINE_BYTES_MAX: u64 = 1 << 17;
/// The largest size of a key; it is above the largest value that a node can be set to take.
const SIZE_MAX: u64 = 1 << 40;

/// Reads the file.
///
/// # Errors
/// The file cannot be read, or a line is malformed; the error has the number of the line.
pub(super) fn read(path: &Path) -> Result<SimulatedKeys, String> {
    let file =
        File::open(path).map_err(|e| format!("cannot read --key-file {}: {e}", path.display()))?;
    parse(BufReader::new(file)).map_err(|e| format!("--key-file {}: {e}", path.display()))
}

fn parse(mut file: impl BufRead) -> Result<SimulatedKeys, String> {
    let mut keys = SimulatedKeys::default();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let length = file
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .map_err(|e| format!("line {number}: {e}"))?;
        if length == 0 {
            break;
        }
        if length as u64 == LINE_BYTES_MAX {
            return Err(format!(
                "line {number} has more than {LINE_BYTES_MAX} bytes"
            ));
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        if keys.len() == KEYS_MAX {
            return Err(format!(
                "line {number}: there are more than {KEYS_MAX} keys"
            ));
        }
        let (name, size, count) = fields(text).ok_or_else(|| {
            format!(
                "line {number} is not a key, its bytes and its number of operations, \
                 as in `user:7 1200 35`: {}",
                shown(text)
            )
        })?;
        keys.push(name, size, count);
    }
    if keys.is_empty() {
        Err("the file has no keys".to_owned())
    } else {
        Ok(keys)
    }
}

/// The fields of a line. A key may contain blanks, so the last two fields are the numbers.
fn fields(text: &[u8]) -> Option<(&[u8], u64, f64)> {
    let last = |text: &[u8]| text.iter().rposition(u8::is_ascii_whitespace);
    let (rest, count) = text.split_at(last(text)?);
    let rest = rest.trim_ascii_end();
    let (name, size) = rest.split_at(last(rest)?);
    let number = |text: &[u8]| {
        std::str::from_utf8(text.trim_ascii())
            .ok()
            .map(str::to_owned)
    };
    let size = number(size)?
        .parse()
        .ok()
        .filter(|size| *size <= SIZE_MAX)?;
    let count: f64 = number(count)?
        .parse()
        .ok()
        .filter(|count| (0.0..1e15).contains(count))?;
    let name = name.trim_ascii_end();
    (!name.is_empty()).then_some((name, size, count))
}

fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let start: String = text
        .chars()
        .take(40)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if start.len() < text.len() {
        format!("`{start}..`")
    } else {
        format!("`{start}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_key_its_bytes_and_its_operations() {
        let keys =
            parse(&b"user:7 1200 35\n\n a key with blanks\t64 0.5\r\n\xFF 1 1"[..]).expect("keys");
        let told: Vec<_> = keys.iter().map(|k| (k.name, k.size, k.load)).collect();
        assert_eq!(
            told,
            [
                (&b"user:7"[..], 1200, 35.0),
                (b"a key with blanks", 64, 0.5),
                (b"\xFF", 1, 1.0)
            ]
        );
    }

    #[test]
    fn malformed_lines_are_reported_with_their_numbers() {
        let cases = [
            (
                "a 1 1\nb 1\n",
                "line 2 is not a key, its bytes and its number of operations, as in \
                 `user:7 1200 35`: `b 1`",
            ),
            ("a 1 -1", "line 1 is not"),
            ("a 1 NaN", "line 1 is not"),
            ("a 1.5 1", "line 1 is not"),
            ("a -1 1", "line 1 is not"),
            ("1 1", "line 1 is not"),
            ("a 99999999999999 1", "line 1 is not"),
            ("\n", "the file has no keys"),
            ("", "the file has no keys"),
        ];
        for (text, told) in cases {
            let error = parse(text.as_bytes()).expect_err("wrong");
            assert!(error.contains(told) && !error.contains('\n'), "{error}");
        }
        let endless = vec![b'a'; 1 << 18];
        assert!(parse(&endless[..]).is_err_and(|e| e == "line 1 has more than 131072 bytes"));
        assert!(
            read(Path::new("/nowhere/keys"))
                .is_err_and(|e| e.starts_with("cannot read --key-file /nowhere/keys: "))
        );
    }
}
