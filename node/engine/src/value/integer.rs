//! Whole numbers as Redis reads them, in arguments and in stored values.

/// A decimal 64-bit integer as Redis takes it: no plus sign, no blanks, no leading zeros.
#[must_use]
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', ..] => digits.len() <= 19,
        _ => false,
    };
    if !canonical {
        return None;
    }
    let mut value = 0_i64;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|d| *d <= 9)?);
        // Downwards, because the least integer has no positive counterpart.
        value = value.checked_mul(10)?.checked_sub(digit)?;
    }
    if text.len() == digits.len() {
        value.checked_neg()
    } else {
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_are_those_of_redis() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
        ] {
            assert_eq!(integer(text.as_bytes()), value);
        }
        for text in [
            "",
            "-",
            "+1",
            " 1",
            "1 ",
            "01",
            "-0",
            "00",
            "1a",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn only_the_text_that_is_printed_is_read(
            number in any::<i64>(),
            text in "[-+]?[0-9]{0,20}",
        ) {
            prop_assert_eq!(integer(number.to_string().as_bytes()), Some(number));
            if let Some(number) = integer(text.as_bytes()) {
                prop_assert_eq!(number.to_string(), text);
            }
        }
    }
}
