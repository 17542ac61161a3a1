//! Numbers as C prints and reads them, and the random numbers of scripts.

/// A number as `printf("%.{precision}g")` prints it.
pub(crate) fn to_text(number: f64, precision: usize) -> String {
    let sign = if number.is_sign_negative() { "-" } else { "" };
    if number.is_nan() {
        return format!("{sign}nan");
    }
    if number.is_infinite() {
        return format!("{sign}inf");
    }
    let precision = precision.max(1);
    let scientific = format!("{number:.*e}", precision - 1);
    // Rust's exponents have no sign and no leading zero.
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        let digits = trim_zeros(digits);
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
    } else {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        trim_zeros(&format!("{number:.decimals$}")).to_owned()
    }
}

fn trim_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

/// A text as Lua's `tonumber` reads it: a decimal or hexadecimal number with spaces around it.
pub(crate) fn from_lua_text(text: &[u8]) -> Option<f64> {
    let text = trim(text);
    let (number, used) = from_prefix(text)?;
    (used == text.len()).then_some(number)
}

fn trim(mut text: &[u8]) -> &[u8] {
    let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r');
    while let [first, rest @ ..] = text
        && space(first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && space(last)
    {
        text = rest;
    }
    text
}

/// The longest number at the beginning of a text, and its length, as C's `strtod` reads it. It
/// takes no spaces.
pub(crate) fn from_prefix(text: &[u8]) -> Option<(f64, usize)> {
    let signed = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let sign = if text.first() == Some(&b'-') {
        -1.0
    } else {
        1.0
    };
    let rest = &text[signed..];
    let starts = |word: &str| {
        rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word.as_bytes())
    };
    if starts("infinity") {
        return Some((sign * f64::INFINITY, signed + 8));
    }
    if starts("inf") {
        return Some((sign * f64::INFINITY, signed + 3));
    }
    if starts("nan") {
        let payload = rest[3..].strip_prefix(b"(").and_then(|inner| {
            let end = inner
                .iter()
                .position(|b| !b.is_ascii_alphanumeric() && *b != b'_')?;
            (inner[end] == b')').then_some(end + 2)
        });
        return Some((f64::NAN.copysign(sign), signed + 3 + payload.unwrap_or(0)));
    }
    if starts("0x")
        && let Some((number, used)) = hexadecimal(&rest[2..])
    {
        return Some((sign * number, signed + 2 + used));
    }
    decimal(rest).map(|(number, used)| (sign * number, signed + used))
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let whole = digits(text);
    let mut used = whole;
    if text.get(used) == Some(&b'.') {
        let fraction = digits(&text[used + 1..]);
        if whole + fraction > 0 {
            used += 1 + fraction;
        }
    }
    if used == 0 {
        return None;
    }
    used += exponent(&text[used..], b'e').map_or(0, |(_, length)| length);
    let number = std::str::from_utf8(&text[..used]).ok()?.parse().ok()?;
    Some((number, used))
}

/// The exponent at the beginning of a text, and its length.
fn exponent(text: &[u8], letter: u8) -> Option<(i32, usize)> {
    if !text.first()?.eq_ignore_ascii_case(&letter) {
        return None;
    }
    let signed = usize::from(matches!(text.get(1), Some(b'+' | b'-')));
    let length = digits(&text[1 + signed..]);
    if length == 0 {
        return None;
    }
    let number = text[1 + signed..1 + signed + length]
        .iter()
        .fold(0_i32, |number, digit| {
            number
                .saturating_mul(10)
                .saturating_add(i32::from(digit - b'0'))
        });
    Some((
        if text[1] == b'-' { -number } else { number },
        1 + signed + length,
    ))
}

fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let (mut number, mut scale, mut used, mut point, mut any) = (0.0_f64, 0_i32, 0, false, false);
    for byte in text {
        if let Some(digit) = char::from(*byte).to_digit(16) {
            number = number * 16.0 + f64::from(digit);
            scale -= if point { 4 } else { 0 };
            any = true;
        } else if *byte == b'.' && !point {
            point = true;
        } else {
            break;
        }
        used += 1;
    }
    if !any {
        return None;
    }
    if let Some((power, length)) = exponent(&text[used..], b'p') {
        scale = scale.saturating_add(power);
        used += length;
    }
    Some((number * 2_f64.powi(scale), used))
}

/// The state of the random numbers before any seed, as in Redis.
pub(crate) const RANDOM_FIRST: u64 = 0x1234_abcd_330e;

/// The state of the random numbers after `math.randomseed(seed)`.
pub(crate) fn random_seed(seed: i32) -> u64 {
    (u64::from(seed as u32) << 16) | 0x330e
}

/// The next of Redis's random numbers, 0 to 2^31 - 1: those of POSIX's `lrand48`, the same on every
/// machine.
pub(crate) fn random_next(state: u64) -> (u64, u32) {
    let next = state.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & 0xffff_ffff_ffff;
    (next, (next >> 17) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_in_c() {
        for (number, precision, text) in [
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (1.0, 14, "1"),
            (0.1, 14, "0.1"),
            (0.1, 17, "0.10000000000000001"),
            (3.0e10, 17, "30000000000"),
            (1e15, 14, "1e+15"),
            (1e14, 14, "1e+14"),
            (12345678901234.5, 14, "12345678901234"),
            (0.0001, 14, "0.0001"),
            (0.00001, 14, "1e-05"),
            (1e100, 17, "1e+100"),
            (1.5e-7, 3, "1.5e-07"),
            (99999.0, 3, "1e+05"),
            (9007199254740993.0, 17, "9007199254740992"),
            (f64::INFINITY, 14, "inf"),
            (f64::NEG_INFINITY, 14, "-inf"),
        ] {
            assert_eq!(to_text(number, precision), text);
        }
        assert_eq!(to_text(f64::NAN.copysign(-1.0), 14), "-nan");
    }

    #[test]
    fn numbers_are_read_as_in_c() {
        for (text, number, used) in [
            ("1", 1.0, 1),
            ("-1.5e3x", -1500.0, 6),
            ("1.e", 1.0, 2),
            (".5", 0.5, 2),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            ("0x10", 16.0, 4),
            ("0x.8p1", 1.0, 6),
            ("0x", 0.0, 1),
            ("infinit", f64::INFINITY, 3),
            ("Infinity", f64::INFINITY, 8),
            ("1e999999999999", f64::INFINITY, 14),
        ] {
            assert_eq!(from_prefix(text.as_bytes()), Some((number, used)), "{text}");
        }
        assert_eq!(from_prefix(b"."), None);
        assert_eq!(from_prefix(b"-"), None);
        assert_eq!(from_prefix(b"nan(a)").map(|(_, used)| used), Some(6));
        assert_eq!(from_lua_text(b" 0x1F\n"), Some(31.0));
        assert_eq!(from_lua_text(b"1 2"), None);
        assert_eq!(from_lua_text(b""), None);
    }

    #[test]
    fn random_numbers_are_those_of_lrand48() {
        let (state, first) = random_next(random_seed(0));
        assert_eq!(first, 366_850_414);
        assert_eq!(random_next(state).1, 1_610_402_240);
    }
}
