//! Strings: one run of bytes.

use super::{Layout, Type, TypeEvents};
use crate::value::integer::integer;
use crate::value::kind::Encoding;

pub(super) static STRING: Type = Type {
    name: "string",
    level: 0,
    encodings: &[INT, EMBEDDED, RAW],
    events: TypeEvents {
        class: b'$',
        put: "set",
        removed: "del",
    },
    layout: Layout::Value(encoding),
};

const INT: Encoding = Encoding::new(0, "int");
const EMBEDDED: Encoding = Encoding::new(1, "embstr");
const RAW: Encoding = Encoding::new(2, "raw");

/// Longest value that Redis stores beside the object's head.
const EMBEDDED_BYTES_MAX: usize = 44;

/// How Redis would store this value if it had just been written whole.
fn encoding(value: &[u8]) -> Encoding {
    if value.len() > EMBEDDED_BYTES_MAX {
        RAW
    } else if integer(value).is_some() {
        INT
    } else {
        EMBEDDED
    }
}
