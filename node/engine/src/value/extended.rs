//! Numbers of `INCRBYFLOAT`: binary floating point with 64 bits of mantissa, the "long double" of
//! Redis on x86-64.
//!
//! Clients depend on its digits: 90071992547409931 minus 90071992547409930 is 1, while a double
//! gives 0 or 16. Rust has no such type, so whole numbers of any size do the work. Each step is
//! exact, and is then rounded once, to the nearest, to even in the middle, as the processor does.

use num_bigint::BigUint;

/// A number, or infinity: `mantissa` times 2 to the `exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extended {
    negative: bool,
    /// Its highest bit is set, except for zero and the smallest numbers.
    mantissa: u64,
    /// `EXPONENT_MIN` for zero and the smallest numbers. `INFINITE` for infinity, whose mantissa is
    /// 0.
    exponent: i32,
}

const EXPONENT_MIN: i32 = -16_445;
const EXPONENT_MAX: i32 = 16_320;
const INFINITE: i32 = EXPONENT_MAX + 1;
const MANTISSA_BITS: u64 = 64;
/// Longest text that is accepted.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;
/// Most digits after the point.
const DECIMALS: u32 = 17;
/// No number is as large as 10 to the upper bound, and every number below 10 to the lower bound is
/// 0.
const TENS: std::ops::RangeInclusive<i64> = -4_950..=4_933;

impl Extended {
    /// Zero.
    pub const ZERO: Self = Self {
        negative: false,
        mantissa: 0,
        exponent: EXPONENT_MIN,
    };

    /// The number with these parts, if they are valid.
    pub(crate) fn of_parts(negative: bool, mantissa: u64, exponent: i32) -> Option<Self> {
        let normal = mantissa >> (MANTISSA_BITS - 1) == 1
            && (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent);
        let least = exponent == EXPONENT_MIN;
        let infinite = exponent == INFINITE && mantissa == 0;
        (normal || least || infinite).then_some(Self {
            negative,
            mantissa,
            exponent,
        })
    }

    /// Its parts.
    pub(crate) const fn parts(self) -> (bool, u64, i32) {
        (self.negative, self.mantissa, self.exponent)
    }

    const fn infinite(negative: bool) -> Self {
        Self {
            negative,
            mantissa: 0,
            exponent: INFINITE,
        }
    }

    /// The same number with the other sign.
    #[must_use]
    pub(crate) const fn negated(self) -> Self {
        Self {
            negative: !self.negative,
            ..self
        }
    }

    /// Whether it is less than the other.
    pub(crate) fn is_below(self, other: Self) -> bool {
        let order = |number: Self| {
            let size = (number.exponent, number.mantissa);
            let zero = number.mantissa == 0 && number.is_finite();
            match number.negative {
                _ if zero => (0, (0, 0)),
                false => (1, size),
                true => (-1, (-size.0, u64::MAX - size.1)),
            }
        };
        order(self) < order(other)
    }

    /// Whether it is not infinite.
    pub const fn is_finite(self) -> bool {
        self.exponent != INFINITE
    }

    /// Reads a text as `strtold` of the C library does and Redis requires: all of it, without
    /// spaces. `None`: it is not a number, or too large or too small for one.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            all => (false, all),
        };
        if digits.eq_ignore_ascii_case(b"inf") || digits.eq_ignore_ascii_case(b"infinity") {
            return Some(Self::infinite(negative));
        }
        let (digits, found) = match digits {
            [b'0', b'x' | b'X', rest @ ..] => {
                let (digits, behind_point, exponent) = scientific(rest, 16, b'p')?;
                let number = BigUint::from_radix_be(&digits, 16)?;
                // An exponent far out of range stays there whichever digits there are: there are at
                // most five thousand.
                let exponent = exponent.clamp(-1 << 20, 1 << 20) - 4 * behind_point;
                (
                    digits,
                    round(negative, number, i32::try_from(exponent).ok()?, false),
                )
            }
            _ => {
                let (digits, behind_point, exponent) = scientific(digits, 10, b'e')?;
                let found = of_decimal(negative, &digits, exponent.saturating_sub(behind_point))?;
                (digits, found)
            }
        };
        let vanished = found.mantissa == 0 && digits.iter().any(|d| *d != 0);
        (found.is_finite() && !vanished).then_some(found)
    }

    /// The sum. It is not finite if the result is not a number.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        if !self.is_finite() || !other.is_finite() {
            return Self::infinite(false);
        }
        let exponent = self.exponent.min(other.exponent);
        // Never negative, and 32,765 bits at most.
        let scaled = |n: Self| BigUint::from(n.mantissa) << (n.exponent - exponent).unsigned_abs();
        let (a, b) = (scaled(self), scaled(other));
        let (negative, sum) = match () {
            () if self.negative == other.negative => (self.negative, a + b),
            () if a >= b => (self.negative && a != b, a - b),
            () => (other.negative, b - a),
        };
        round(negative, sum, exponent, false)
    }

    /// As Redis prints it: 17 decimals at most, without an exponent, and without zeros at the end.
    /// The number must be finite.
    #[must_use]
    pub fn text(self) -> String {
        let scaled = BigUint::from(self.mantissa) * BigUint::from(10_u32).pow(DECIMALS);
        let scaled = match u64::from(self.exponent.unsigned_abs()) {
            up if self.exponent >= 0 => scaled << up,
            down => halved(&scaled, down, false),
        };
        let decimals = DECIMALS as usize;
        let digits = format!("{:0>width$}", scaled.to_str_radix(10), width = decimals + 1);
        let (whole, fraction) = digits.split_at(digits.len() - decimals);
        let fraction = fraction.trim_end_matches('0');
        let sign = if self.negative && (whole != "0" || !fraction.is_empty()) {
            "-"
        } else {
            ""
        };
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{sign}{whole}{point}{fraction}")
    }
}

/// The digits of a number, how many of them are after the point, and its exponent. `None`: it is
/// not a number.
fn scientific(text: &[u8], radix: u32, mark: u8) -> Option<(Vec<u8>, i64, i64)> {
    let (mut digits, mut point) = (Vec::new(), None);
    let mut exponent = 0;
    for (at, c) in text.iter().copied().enumerate() {
        match char::from(c).to_digit(radix) {
            Some(digit) => digits.push(u8::try_from(digit).ok()?),
            None if c == b'.' && point.is_none() => point = Some(digits.len()),
            None if c.to_ascii_lowercase() == mark => {
                exponent = signed(&text[at + 1..])?;
                break;
            }
            None => return None,
        }
    }
    let behind_point = point.map_or(0, |point| digits.len() - point);
    (!digits.is_empty()).then_some((digits, i64::try_from(behind_point).ok()?, exponent))
}

/// Reads an exponent. One that is too large for any number becomes just very large.
fn signed(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n = digits.iter().fold(0_i64, |n, c| {
        n.saturating_mul(10).saturating_add(i64::from(c - b'0'))
    });
    Some(if negative { -n } else { n })
}

/// Decimal digits times 10 to this exponent.
fn of_decimal(negative: bool, digits: &[u8], exponent: i64) -> Option<Extended> {
    let zeros = digits.iter().take_while(|d| **d == 0).count();
    let digits = &digits[zeros..];
    let zero = Extended {
        negative,
        ..Extended::ZERO
    };
    if digits.is_empty() {
        return Some(zero);
    }
    // Checked before computing powers of ten that no number needs.
    match exponent.saturating_add(i64::try_from(digits.len()).ok()?) {
        tens if tens > *TENS.end() => return Some(Extended::infinite(negative)),
        tens if tens < *TENS.start() => return Some(zero),
        _ => {}
    }
    let number = BigUint::from_radix_be(digits, 10)?;
    let power = BigUint::from(10_u32).pow(u32::try_from(exponent.unsigned_abs()).ok()?);
    if exponent >= 0 {
        return Some(round(negative, number * power, 0, false));
    }
    // Enough bits to leave two for rounding.
    let more = (MANTISSA_BITS + 2 + power.bits()).saturating_sub(number.bits());
    let shifted = number << more;
    let quotient = &shifted / &power;
    let inexact = &quotient * power != shifted;
    Some(round(
        negative,
        quotient,
        -i32::try_from(more).ok()?,
        inexact,
    ))
}

/// The number nearest to this one times 2 to the exponent. `inexact`: it is a little more.
fn round(negative: bool, number: BigUint, exponent: i32, inexact: bool) -> Extended {
    let bits = number.bits();
    if bits == 0 {
        return Extended {
            negative,
            ..Extended::ZERO
        };
    }
    let above = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    // The position of its lowest bit, so that all bits fit and none is below the least.
    let place = (i64::from(exponent) + above(bits) - above(MANTISSA_BITS)).max(EXPONENT_MIN.into());
    let drop = place - i64::from(exponent);
    let number = if drop > 0 {
        halved(&number, drop.unsigned_abs(), inexact)
    } else {
        number << drop.unsigned_abs()
    };
    // Rounding up may have added one bit. All others are 0 then.
    let longer = number.bits() > MANTISSA_BITS;
    let number = if longer { number >> 1_u32 } else { number };
    let place = place + i64::from(longer);
    match (u64::try_from(number), i32::try_from(place)) {
        (Ok(mantissa), Ok(exponent)) if exponent <= EXPONENT_MAX => Extended {
            negative,
            mantissa,
            exponent,
        },
        _ => Extended::infinite(negative),
    }
}

/// The whole number nearest to this one divided by 2 so often; in the middle, the even one.
/// `inexact`: it is a little more.
fn halved(number: &BigUint, times: u64, inexact: bool) -> BigUint {
    let whole = number >> times;
    let half = times > 0 && number.bit(times - 1);
    let beyond = inexact
        || number
            .trailing_zeros()
            .is_some_and(|zeros| zeros + 1 < times);
    if half && (beyond || whole.bit(0)) {
        whole + 1_u32
    } else {
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        let sum = Extended::parse(a.as_bytes())?.plus(Extended::parse(b.as_bytes())?);
        sum.is_finite().then(|| sum.text())
    }

    /// Each result was compared with redis-server 7.0.15 on x86-64, see
    /// tests/scripts/incrbyfloat.py.
    #[test]
    fn sums_have_the_digits_of_redis() {
        for case in include_str!("extended/sums.txt")
            .lines()
            .filter(|l| !l.starts_with('#') && !l.is_empty())
        {
            let words: Vec<&str> = case.split(' ').collect();
            let [a, b, expected] = words[..] else {
                panic!("{case}")
            };
            assert_eq!(
                sum(a, b).as_deref().unwrap_or("error"),
                expected,
                "{a} + {b}"
            );
        }
    }

    #[test]
    fn numbers_have_an_order() {
        let texts = [
            "-inf", "-200", "-1.5", "-1", "-0.25", "0", "0.25", "1", "1.5", "200", "inf",
        ];
        let numbers = texts.map(|text| Extended::parse(text.as_bytes()).unwrap());
        for (a, one) in numbers.iter().enumerate() {
            for (b, other) in numbers.iter().enumerate() {
                assert_eq!(one.is_below(*other), a < b, "{} {}", texts[a], texts[b]);
            }
        }
        assert!(!Extended::ZERO.is_below(Extended::ZERO.negated()));
    }

    #[test]
    fn every_number_comes_back_from_its_parts() {
        for text in [
            "0",
            "-0",
            "1",
            "-1.5",
            "3.6e-4951",
            "1e4932",
            "inf",
            "-inf",
            "0x1p-16445",
        ] {
            let number = Extended::parse(text.as_bytes()).expect(text);
            let (negative, mantissa, exponent) = number.parts();
            assert_eq!(
                Extended::of_parts(negative, mantissa, exponent),
                Some(number),
                "{text}"
            );
        }
        for (mantissa, exponent) in [
            (1, 0),
            (1, EXPONENT_MAX),
            (1 << 63, EXPONENT_MAX + 1),
            (1 << 63, EXPONENT_MIN - 1),
            (5, INFINITE),
        ] {
            assert_eq!(
                Extended::of_parts(false, mantissa, exponent),
                None,
                "{mantissa} {exponent}"
            );
        }
    }

    /// A client's text must not decide how long or how large the work is.
    #[test]
    fn texts_of_any_length_and_exponent_are_read_or_refused_at_once() {
        let long = "9".repeat(TEXT_BYTES_MAX);
        assert_eq!(Extended::parse(long.as_bytes()), None, "too large");
        let fraction = format!("0.{}", "9".repeat(TEXT_BYTES_MAX - 2));
        assert_eq!(Extended::parse(fraction.as_bytes()), Extended::parse(b"1"));
        assert_eq!(Extended::parse(format!("{fraction}9").as_bytes()), None);
        for exponent in [
            "4932",
            "-4950",
            "99999999999999999999999",
            "-99999999999999999999999",
        ] {
            for mark in ["1e", "0x1p", "0.000e"] {
                let _ = Extended::parse(format!("{mark}{exponent}").as_bytes()).map(Extended::text);
            }
        }
    }
}
