//! A sample of the keys that a partition is asked for. It is enough to find the key at which the
//! load halves, or to see that one key causes it.

use crate::id::MapId;
use serde::{Deserialize, Serialize};

/// The number of bytes that are kept of a key. The rest distinguishes only keys that are near one
/// another anyway.
pub const KEY_BYTES_MAX: usize = 64;
/// The number of keys that are kept.
const KEYS: usize = 32;
/// The number of keys from which a sample is meaningful.
const KEYS_LEAST: usize = 16;

/// How the requests to a partition spread over its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Skew {
    /// There are too few requests to tell.
    #[default]
    Unknown,
    /// Half of the requests are for keys before this key of this map, cut to [`KEY_BYTES_MAX`].
    Halves(MapId, Vec<u8>),
    /// More than half of the requests are for this one key, cut in the same way. Splitting does not
    /// help.
    OneKey(MapId, Vec<u8>),
}

impl Skew {
    pub(super) fn bound(&mut self) {
        match self {
            Self::Unknown => {}
            Self::Halves(_, key) | Self::OneKey(_, key) => key.truncate(KEY_BYTES_MAX),
        }
    }

    /// The number of bytes of its key.
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Halves(_, key) | Self::OneKey(_, key) => key.len(),
        }
    }
}

/// A reservoir of keys: each recent operation is as likely in it as any other.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Length and bytes, in place, so that sampling allocates nothing after the first key.
    keys: Vec<(MapId, u8, [u8; KEY_BYTES_MAX])>,
}

impl Sample {
    /// Puts a key into the sample. `number` must be different each time. It replaces an older key,
    /// so that the sample follows the present requests.
    pub fn take(&mut self, number: u64, map: MapId, key: &[u8]) {
        let length = key.len().min(KEY_BYTES_MAX);
        let mut kept = [0; KEY_BYTES_MAX];
        kept[..length].copy_from_slice(&key[..length]);
        let kept = (map, length as u8, kept);
        if self.keys.len() < KEYS {
            self.keys.reserve_exact(KEYS - self.keys.len());
            return self.keys.push(kept);
        }
        // Multiplied by the bits of the golden ratio, successive numbers go to scattered places. So
        // no rhythm of clients fills the sample with one key.
        let place = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize % KEYS;
        self.keys[place] = kept;
    }

    /// The result of the sample.
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
        // If one key is more than half of the sample, it stands in the middle.
        let middle = keys[keys.len() / 2];
        let same = keys.iter().filter(|key| **key == middle).count();
        if same * 2 > keys.len() {
            return Skew::OneKey(middle.0, middle.1.to_vec());
        }
        // The lowest key is no boundary, because no key would be before it.
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
            let kept: Vec<&[u8]> = sample
                .keys
                .iter()
                .map(|(_, length, key)| &key[..usize::from(*length)])
                .collect();
            match sample.skew() {
                Skew::Unknown => prop_assert!(kept.len() < KEYS_LEAST),
                Skew::OneKey(_, hot) => {
                    prop_assert!(kept.iter().filter(|k| ***k == hot[..]).count() * 2 > kept.len())
                }
                Skew::Halves(_, key) => {
                    let before = kept.iter().filter(|k| **k < &key[..]).count();
                    prop_assert!(before > 0 && before < kept.len(), "both sides have some");
                    // Equal keys stay together, and no key is more than half of the sample.
                    let same = kept.iter().filter(|k| ***k == key[..]).count();
                    prop_assert!(
                        before <= kept.len() / 2 + same && before + same * 2 + 1 >= kept.len() / 2
                    );
                }
            }
        }

        #[test]
        fn long_keys_are_cut(key in prop::collection::vec(any::<u8>(), 65..200)) {
            prop_assert_eq!(
                sample(vec![&key; 20]).skew(),
                Skew::OneKey(MAP, key[..64].to_vec())
            );
        }
    }
}
