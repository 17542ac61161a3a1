//! LZF, with which Redis compresses long strings. Decompression only: what this crate writes is
//! read faster without.

/// The bytes that were compressed, if they are as many as that. `None`: the input is damaged.
pub(crate) fn decompress(mut input: &[u8], length: usize) -> Option<Vec<u8>> {
    // A byte of the input makes at most 132 bytes: a run of 264 takes 3 bytes, or 2 if it is short.
    const EXPANDS_MAX: usize = 132;
    if length > input.len().saturating_mul(EXPANDS_MAX) {
        return None;
    }
    let mut out = Vec::with_capacity(length);
    while let Some((&control, rest)) = input.split_first() {
        input = rest;
        let control = usize::from(control);
        if control < 32 {
            let (literal, rest) = input.split_at_checked(control + 1)?;
            out.extend_from_slice(literal);
            input = rest;
        } else {
            let mut run = control >> 5;
            if run == 7 {
                let (&more, rest) = input.split_first()?;
                run += usize::from(more);
                input = rest;
            }
            let (&low, rest) = input.split_first()?;
            input = rest;
            let back = ((control & 31) << 8) + usize::from(low) + 1;
            let from = out.len().checked_sub(back)?;
            // A run may overlap what it writes.
            for at in from..from + run + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::decompress;

    #[test]
    fn runs_may_overlap_what_they_write() {
        // One literal `a`, and a run of 9 of it from one byte before.
        assert_eq!(
            decompress(&[0, b'a', 0xE0, 0, 0], 10),
            Some(b"aaaaaaaaaa".to_vec())
        );
    }

    #[test]
    fn damaged_bytes_are_refused() {
        for (input, length) in [
            (&[0, b'a'][..], 2),
            (&[0, b'a'], usize::MAX),
            (&[5, b'a'], 6),
            (&[0x20, 0], 3),
            (&[0, b'a', 0xE0, 0], 10),
            (&[0, b'a', 0xE0, 0, 9], 10),
        ] {
            assert_eq!(decompress(input, length), None, "{input:?}");
        }
    }
}
