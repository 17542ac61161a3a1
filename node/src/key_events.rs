//! Which messages about keys the clients of Redis may subscribe to.

use std::fmt;
use std::str::FromStr;

/// Which messages about keys Redis clients may subscribe to, as Redis writes it
/// (`notify-keyspace-events`): a bit for each letter.
///
/// ```
/// use doyen::config::KeyEvents;
///
/// let expired: KeyEvents = "Ex".parse()?;
/// println!("{expired}");
/// assert!("y".parse::<KeyEvents>().is_err(), "Redis has no such letter");
/// # Ok::<_, String>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyEvents(u32);

/// The classes of events, in the order in which Redis shows them.
const CLASSES: &[u8] = b"g$lshzxetdn";
/// The classes that `A` stands for: all but new keys.
const ALL_CLASSES: &[u8] = b"g$lshzxetd";
/// What else the setting may name: channels by key, channels by event, keys that were missed.
const OTHER_EVENTS: &[u8] = b"KEm";

#[cfg_attr(
    not(feature = "resp"),
    allow(dead_code, reason = "only Redis clients get messages about keys")
)]
impl KeyEvents {
    /// The setting as a number.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// The setting of a number.
    pub(crate) const fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Whether it has this letter.
    pub(crate) fn has(self, letter: u8) -> bool {
        event_bit(letter).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Whether it asks for any message.
    pub(crate) fn any(self) -> bool {
        (self.has(b'K') || self.has(b'E')) && self.0 & event_bits(CLASSES) != 0
    }
}

impl FromStr for KeyEvents {
    type Err = String;

    /// The error is that of Redis.
    fn from_str(letters: &str) -> Result<Self, String> {
        let mut bits = 0;
        for letter in letters.bytes() {
            bits |= match letter {
                b'A' => event_bits(ALL_CLASSES),
                letter => event_bit(letter)
                    .ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?,
            };
        }
        Ok(Self(bits))
    }
}

impl fmt::Display for KeyEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = event_bits(ALL_CLASSES);
        let classes = if self.0 & all == all {
            f.write_str("A")?;
            &b""[..]
        } else {
            CLASSES
        };
        for letter in classes.iter().chain(OTHER_EVENTS) {
            if self.has(*letter) {
                write!(f, "{}", char::from(*letter))?;
            }
        }
        Ok(())
    }
}

fn event_bit(letter: u8) -> Option<u32> {
    let mut letters = CLASSES.iter().chain(OTHER_EVENTS);
    letters.position(|known| *known == letter).map(|n| 1 << n)
}

fn event_bits(letters: &[u8]) -> u32 {
    letters.iter().filter_map(|letter| event_bit(*letter)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_keys_are_shown_as_redis_shows_them() {
        for (given, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("Ex", "xE"),
            ("EK$gx", "g$xKE"),
            ("g$lshzxetdKEnm", "AKEm"),
            ("n", "n"),
        ] {
            let events: KeyEvents = given.parse().expect("known letters");
            assert_eq!(events.to_string(), shown, "{given}");
            assert_eq!(KeyEvents::of_bits(events.bits()), events);
        }
        assert!("KEq".parse::<KeyEvents>().is_err());
        let tells = |letters: &str| letters.parse::<KeyEvents>().expect("known letters").any();
        assert!(tells("Ex") && tells("KA") && !tells("") && !tells("KE") && !tells("A"));
    }
}
