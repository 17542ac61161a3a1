//! Some of the keys that a partition is asked for: enough to say at which key its load halves, or
//! that it is one key's.

use crate::id::MapId;
use serde::{Deserialize, Serialize};

/// Of a key, so many bytes are kept: what is cut off tells keys apart only that are near one
/// another anyway.
pub const KEY_BYTES_MAX: usize = 64;
/// Keys that are kept.
const KEYS: usize = 32;
/// Keys from which on they say something.
const KEYS_LEAST: usize = 16;

/// How what is asked of a partition spreads over its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Skew {
    /// Too little is asked to tell.
    #[default]
    Unknown,
    /// Half of what is asked is for keys before this one of this map, cut to [`KEY_BYTES_MAX`].
    Halves(MapId, Vec<u8>),
    /// More than half of what is asked is for this one key, cut likewise: splitting does not help.
    OneKey(MapId, Vec<u8>),
}

impl Skew {
    pub(super) fn bound(&mut self) {
        match self {
            Self::Unknown => {}
            Self::Halves(_, key) | Self::OneKey(_, key) => key.truncate(KEY_BYTES_MAX),
        }
    }

    /// Bytes of its key.
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Halves(_, key) | Self::OneKey(_, key) => key.len(),
        }
    }
}

/// A reservoir of keys: each operation of the last while is as likely in it as any other.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Length and bytes. Kept in place, so that a sampled operation allocates nothing after the
    /// first.
    keys: Vec<(MapId, u8, [u8; KEY_BYTES_MAX])>,
}

impl Sample {
    /// Takes a key in; `number` is different each time. What was in its place is forgotten, so that
    /// the sample follows what is asked now.
    pub fn take(&mut self, number: u64, map: MapId, key: &[u8]) {
        let length = key.len().min(KEY_BYTES_MAX);
        let mut kept = [0; KEY_BYTES_MAX];
        kept[..length].copy_from_slice(&key[..length]);
        let kept = (map, length as u8, kept);
        if self.keys.len() < KEYS {
            self.keys.reserve_exact(KEYS - self.keys.len());
            return self.keys.push(kept);
        }
        // Multiplied by the golden ratio's bits, numbers in a row go to places all over: no rhythm
        // of callers fills it with one of them.
        let place = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize % KEYS;
        self.keys[place] = kept;
    }

    /// What these keys say.
    #[must_use]
    pub fn skew(&self) -> Skew {
        if self.keys.len() < KEYS_LEAST {
            return Skew::Unknown;
        }
        let mut keys: Vec<(MapId, &[u8])> = self
            .keys
            .iter()
            .map(|(map, length, key)| (*map, &key[..usize::from(*length)]))
            .collect();
        keys.sort_unstable();
        // Whatever is more than half of them stands in the middle.
        let middle = keys[keys.len() / 2];
        let same = keys.iter().filter(|key| **key == middle).count();
        if same * 2 > keys.len() {
            return Skew::OneKey(middle.0, middle.1.to_vec());
        }
        // The lowest key is no boundary: nothing would be before it.
        match keys.iter().find(|key| **key >= middle && **key > keys[0]) {
            Some((map, key)) => Skew::Halves(*map, key.to_vec()),
            None => Skew::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAP: MapId = MapId(3);

    fn sample<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Sample {
        let mut sample = Sample::default();
        (0..)
            .zip(keys)
            .for_each(|(number, key)| sample.take(number, MAP, key.as_ref()));
        sample
    }

    #[test]
    fn few_keys_say_nothing() {
        assert_eq!(sample(["a"; 15]).skew(), Skew::Unknown);
        assert_eq!(sample(["a"; 16]).skew(), Skew::OneKey(MAP, b"a".to_vec()));
    }

    #[test]
    fn one_key_that_is_half_of_them_is_no_hot_key() {
        let half = |n: usize| {
            (0..32).map(move |i| {
                if i < n {
                    "m".to_owned()
                } else {
                    format!("k{i}")
                }
            })
        };
        assert_eq!(sample(half(17)).skew(), Skew::OneKey(MAP, b"m".to_vec()));
        assert!(matches!(sample(half(16)).skew(), Skew::Halves(..)));
    }

    #[test]
    fn an_old_request_is_forgotten() {
        let sample =
            sample(std::iter::repeat_n("old", 1000).chain(std::iter::repeat_n("new", 1000)));
        assert_eq!(sample.skew(), Skew::OneKey(MAP, b"new".to_vec()));
    }

    proptest! {
        #[test]
        fn the_halving_key_halves(keys in prop::collection::vec("[a-f]{1,3}", 0..200)) {
            let sample = sample(&keys);
            let kept: Vec<&[u8]> = sample.keys.iter().map(|(_, length, key)| &key[..usize::from(*length)]).collect();
            match sample.skew() {
                Skew::Unknown => prop_assert!(kept.len() < KEYS_LEAST),
                Skew::OneKey(_, hot) => prop_assert!(kept.iter().filter(|k| ***k == hot[..]).count() * 2 > kept.len()),
                Skew::Halves(_, key) => {
                    let before = kept.iter().filter(|k| **k < &key[..]).count();
                    prop_assert!(before > 0 && before < kept.len(), "both sides have some");
                    // Equal keys stay together, and no key is more than half.
                    let same = kept.iter().filter(|k| ***k == key[..]).count();
                    prop_assert!(before <= kept.len() / 2 + same && before + same * 2 + 1 >= kept.len() / 2);
                }
            }
        }

        #[test]
        fn long_keys_are_cut(key in prop::collection::vec(any::<u8>(), 65..200)) {
            prop_assert_eq!(sample(vec![&key; 20]).skew(), Skew::OneKey(MAP, key[..64].to_vec()));
        }
    }
}
