//! Tags of message kinds, each written once.
//!
//! serde numbers the variants of an enum by their places: a variant between others would change the
//! bytes of those behind it. [`tagged!`](crate::tagged!) gives each variant its own number, and
//! refuses unlisted numbers with an error.

use serde::de::{Deserialize, Deserializer, Visitor};
use std::fmt;

/// Implements `Serialize` and `Deserialize` for an enum, with these tags. Fields are encoded in the
/// order in which they are listed. A missing variant and a tag that is given twice do not compile.
///
/// ```
/// enum Fruit {
///     Apple(u8),
///     Pear { length: u16, ripe: bool },
/// }
/// doyen_placement::tagged!(Fruit {
///     0 => Apple(grams),
///     7 => Pear { length, ripe },
/// });
/// let pear = Fruit::Pear { length: 90, ripe: true };
/// assert_eq!(doyen_placement::codec::encode(&pear, 100), Ok(vec![7, 90, 1]));
/// ```
#[macro_export]
macro_rules! tagged {
    ($name:ident { $($tag:literal => $variant:ident $fields:tt),* $(,)? }) => {
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant $fields => serializer.serialize_newtype_variant(
                        stringify!($name),
                        $tag,
                        stringify!($variant),
                        &$crate::tagged!(@tuple $fields),
                    ),)*
                }
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                struct Variants;

                impl<'de> ::serde::de::Visitor<'de> for Variants {
                    type Value = $name;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str(stringify!($name))
                    }

                    #[deny(unreachable_patterns)]
                    fn visit_enum<A: ::serde::de::EnumAccess<'de>>(
                        self,
                        data: A,
                    ) -> Result<$name, A::Error> {
                        use ::serde::de::{Error, VariantAccess};
                        let ($crate::tagged::Tag(tag), content) = data.variant()?;
                        match tag {
                            $($tag => {
                                let $crate::tagged!(@tuple $fields) = content.newtype_variant()?;
                                Ok($name::$variant $fields)
                            })*
                            other => Err(A::Error::custom(format_args!(
                                "{} of the unknown kind {other}: the program that sent it is newer",
                                stringify!($name),
                            ))),
                        }
                    }
                }

                source.deserialize_enum(stringify!($name), &[$(stringify!($variant)),*], Variants)
            }
        }
    };
    (@tuple ($($field:ident),* $(,)?)) => { ($($field,)*) };
    (@tuple {$($field:ident),* $(,)?}) => { ($($field,)*) };
}

/// A tag that was read.
#[doc(hidden)]
#[derive(Debug)]
pub struct Tag(pub u32);

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Tag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number of a kind")
            }

            fn visit_u32<E>(self, tag: u32) -> Result<Tag, E> {
                Ok(Tag(tag))
            }
        }

        source.deserialize_identifier(Number)
    }
}

#[cfg(test)]
mod tests {
    #[derive(Debug, Clone, PartialEq)]
    enum Fruit {
        Pear { length: u16, ripe: bool },
        Apple(u8),
        Plum {},
    }

    tagged!(Fruit {
        0 => Apple(grams),
        2 => Pear { length, ripe },
        7 => Plum {},
    });

    /// The serialization that serde derives, in which places are tags.
    #[derive(Debug, serde::Serialize)]
    #[allow(dead_code, reason = "takes the numbers before it")]
    enum Derived {
        Apple(u8),
        Fig,
        Pear { length: u16, ripe: bool },
    }

    fn encode(value: &impl serde::Serialize) -> Vec<u8> {
        bincode::serde::encode_to_vec(value, bincode::config::standard()).expect("it is small")
    }

    fn decode(bytes: &[u8]) -> Result<Fruit, String> {
        bincode::serde::decode_from_slice(bytes, bincode::config::standard())
            .map(|(fruit, _)| fruit)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn variants_travel_by_their_tags_wherever_they_stand() {
        let pear = Fruit::Pear {
            length: 300,
            ripe: true,
        };
        assert_eq!(
            encode(&pear),
            encode(&Derived::Pear {
                length: 300,
                ripe: true
            })
        );
        assert_eq!(encode(&Fruit::Apple(9)), encode(&Derived::Apple(9)));
        assert_eq!(encode(&Fruit::Plum {}), [7]);
        for fruit in [pear, Fruit::Apple(9), Fruit::Plum {}] {
            assert_eq!(decode(&encode(&fruit)), Ok(fruit));
        }
        let why = decode(&[1]).expect_err("no kind has it");
        assert!(why.contains("Fruit of the unknown kind 1"), "{why}");
    }
}
