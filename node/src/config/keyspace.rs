//! Options of keyspaces. [`KeyspaceOptions`] is at once the flags of `doyen keyspace`, the JSON of
//! HTTP and the type of the library. Options that are not given have the default of a cluster's
//! first keyspace.

use super::ConfigError;
use super::value::{EvictionPolicy, Lifetime, LossPolicy, RESET_AFTER_MS, RuleText};
use doyen_gossip::agreement::AdminRequest;
use doyen_placement::planner::{KeyspaceChange, NewKeyspace};
use doyen_placement::table::validate::{
    BACKUPS_MAX, PARTITIONS_MAX, TOKENS_EACH_MAX, may_be_called,
};
use doyen_placement::{Division, Durability, Eviction, Mode, OnLoss, Rule, rule};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The default number of partitions.
const PARTITIONS: u16 = 1024;
/// The default number of tokens of a node.
const TOKENS: u16 = 16;

/// The options of a new keyspace, or of a change to one.
///
/// ```
/// use doyen::{Eviction, KeyspaceOptions, OnLoss};
/// use std::time::Duration;
///
/// // Two copies beside the primary, in three zones. A lost partition waits for an operator.
/// let orders = KeyspaceOptions::new()
///     .partitions(64)
///     .backups(2)
///     .min_in_sync(2)
///     .on_loss(OnLoss::Wait)
///     .rules(["copies 1 per zone".parse()?]);
/// // Pages that expire after an hour, or when memory is full.
/// let pages = KeyspaceOptions::new()
///     .default_ttl(Some(Duration::from_secs(3600)))
///     .eviction(Eviction::Lru);
/// // Names in order: before h, from h on, and from p on.
/// let names = KeyspaceOptions::new().ranges(["h", "p"]);
/// // A ring, with scans of keys that have a `{tag}` in common.
/// let events = KeyspaceOptions::new().ring(16).ordered();
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "flags", derive(clap::Args))]
#[serde(deny_unknown_fields, default)]
#[must_use]
pub struct KeyspaceOptions {
    /// How a key finds its partition [default: fixed]
    #[cfg_attr(feature = "flags", arg(long, value_enum, value_name = "MODE"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<KeyspaceMode>,
    /// Of --mode fixed: how many partitions there are, a power of two up to 16384 [default: 1024]
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u16>,
    /// Of --mode ring: how many tokens a node of weight 100 brings, 1 to 256; fewer if all together
    /// would be more than 16384 [default: 16]
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u16>,
    /// Of --mode ring: draw the tokens at random, instead of choosing them so that nodes lead and
    /// hold even shares
    #[cfg_attr(feature = "flags", arg(long))]
    #[serde(skip_serializing_if = "is_false")]
    pub random_tokens: bool,
    /// Of --mode range: where another range begins; repeat the flag for each, in order; bytes may
    /// be written as \xNN
    #[cfg_attr(
        feature = "flags",
        arg(long, value_name = "KEY", allow_hyphen_values = true)
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub split_at: Vec<SplitKey>,
    /// Copies beside the primary, 0 to 6 [default: 1]
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backups: Option<u8>,
    /// The fewest copies, including the primary, with which writes are acknowledged [default: 1]
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_in_sync: Option<u8>,
    /// What happens when every copy of a partition is lost: wait, or reset:10m (or reset) to begin
    /// empty after that time, or at once if all holders are proved dead [default: reset:10m, and
    /// wait with --durability log]
    #[cfg_attr(feature = "flags", arg(long, value_name = "POLICY"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_loss: Option<LossPolicy>,
    /// Of --mode fixed: where a write is when it is acknowledged: none (in memory), or log (also
    /// synced to the directory of every node that holds it in sync) [default: none]
    #[cfg_attr(feature = "flags", arg(long, value_name = "WHERE"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Expiry for keys that are written without one, or none [default: none]
    #[cfg_attr(feature = "flags", arg(long, value_name = "TIME"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_ttl: Option<Lifetime>,
    /// Which keys are evicted when memory is full: none (writes are refused), lru, random, or ttl
    /// (of the keys that expire) [default: none]
    #[cfg_attr(feature = "flags", arg(long, value_name = "POLICY"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction: Option<EvictionPolicy>,
    /// Of fixed and ring keyspaces: keep keys in order within a partition, for SCANRANGE within one
    /// {tag}
    #[cfg_attr(feature = "flags", arg(long))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ordered: bool,
    /// Which members may hold and lead its partitions: 'primary in zone=a', 'copies not in
    /// rack=r1', 'copies 1 per zone'; repeat the flag for each rule
    #[cfg_attr(feature = "flags", arg(long = "rule", value_name = "RULE"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<RuleText>>,
}

/// A field of a request has a value that no cluster would take.
///
/// ```
/// let wrong = doyen::admin::balance::rate("fast").unwrap_err();
/// println!("{}: {}", wrong.field, wrong.why);
/// assert_eq!(wrong.field, "rate");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct InvalidField {
    /// The field, as HTTP calls it: `min_in_sync`.
    pub field: &'static str,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl InvalidField {
    pub(crate) fn new(field: &'static str, why: impl Into<String>) -> Self {
        Self {
            field,
            why: why.into(),
        }
    }
}

impl From<InvalidField> for ConfigError {
    fn from(invalid: InvalidField) -> Self {
        Self(invalid.why)
    }
}

/// How a key finds its partition. It cannot be altered.
///
/// Example: [`KeyspaceOptions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "flags", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum KeyspaceMode {
    /// By a hash, among a fixed number of partitions, as in Redis Cluster
    Fixed,
    /// By a hash, among arcs of a ring between the tokens that nodes bring, as in Cassandra
    Ring,
    /// By the order of the keys, among ranges
    Range,
}

/// Where a range is split, or merged with the one before it.
///
/// ```
/// use doyen::admin::keyspace::SplitRequest;
///
/// let request: SplitRequest = serde_json::from_str(r#"{"at": "m"}"#)?;
/// assert_eq!(request.at.0, b"m");
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitRequest {
    /// The key with which the second one begins.
    pub at: SplitKey,
}

/// A key at which a range begins, as text: bytes that are not printable are written as `\xNN`, a
/// backslash as `\\`.
///
/// ```
/// use doyen::admin::keyspace::SplitKey;
///
/// let key: SplitKey = r"m\x00".parse()?;
/// assert_eq!(key.0, b"m\0");
/// assert_eq!(key.to_string(), r"m\x00");
/// # Ok::<_, String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitKey(pub Vec<u8>);

impl FromStr for SplitKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut key = Vec::with_capacity(text.len());
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            key.push(match byte {
                b'\\' => escaped(&mut bytes).ok_or_else(|| {
                    format!("{text:?}: behind a backslash stands x and two digits, n, r, t, or \\")
                })?,
                byte => byte,
            });
        }
        Ok(Self(key))
    }
}

/// Decodes what follows a backslash, as `escape_ascii` writes it.
fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    Some(match bytes.next()? {
        b'x' => {
            let mut digit = || u8::try_from(char::from(bytes.next()?).to_digit(16)?).ok();
            digit()? << 4 | digit()?
        }
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        plain @ (b'\\' | b'\'' | b'"') => plain,
        _ => return None,
    })
}

impl fmt::Display for SplitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl Serialize for SplitKey {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SplitKey {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl KeyspaceOptions {
    /// No option given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fixed, with this many partitions: a power of two up to 16384. An existing keyspace can be
    /// brought to more.
    pub const fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// A ring to which a node of weight 100 brings this many tokens: 1 to 256. It cannot be
    /// altered.
    pub const fn ring(mut self, tokens: u16) -> Self {
        (self.mode, self.tokens) = (Some(KeyspaceMode::Ring), Some(tokens));
        self
    }

    /// Keys are kept in their order within each partition of a fixed keyspace or a ring, for scans
    /// of keys that begin with the same `{tag}`. It cannot be altered.
    pub const fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// Ranges of keys: one before the first of these splits, and one from each of them on. The
    /// splits must be in order, and cannot be altered this way. They divide what Redis clients and
    /// [`Database`](crate::Database) see. Typed maps are all behind the last one.
    pub fn ranges<K: Into<Vec<u8>>>(mut self, splits: impl IntoIterator<Item = K>) -> Self {
        self.mode = Some(KeyspaceMode::Range);
        self.split_at = splits
            .into_iter()
            .map(|split| SplitKey(split.into()))
            .collect();
        self
    }

    /// Copies beside the primary, at most 6.
    pub const fn backups(mut self, backups: u8) -> Self {
        self.backups = Some(backups);
        self
    }

    /// The fewest copies, including the primary, with which writes are acknowledged: 1 to 1 +
    /// backups.
    pub const fn min_in_sync(mut self, copies: u8) -> Self {
        self.min_in_sync = Some(copies);
        self
    }

    /// What happens when every in-sync copy of a partition is gone.
    pub const fn on_loss(mut self, policy: OnLoss) -> Self {
        self.on_loss = Some(LossPolicy(policy));
        self
    }

    /// Where a write is when it is acknowledged. With [`Durability::Log`], every node that holds
    /// data needs a directory, and the keyspace waits for lost copies unless
    /// [`on_loss`](Self::on_loss) says otherwise.
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Expiry for keys that are written without one; `None`: they do not expire.
    pub const fn default_ttl(mut self, lifetime: Option<Duration>) -> Self {
        self.default_ttl = Some(Lifetime(lifetime));
        self
    }

    /// Which keys are evicted when memory is full. With [`Eviction::None`], writes that need room
    /// are refused.
    pub const fn eviction(mut self, policy: Eviction) -> Self {
        self.eviction = Some(EvictionPolicy(policy));
        self
    }

    /// Which members may hold and lead its partitions: these rules replace all former ones. They
    /// have precedence over keeping copies apart and over balance. No rule reduces the number of
    /// copies.
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules = Some(rules.into_iter().map(RuleText).collect());
        self
    }

    /// A new keyspace of this name.
    ///
    /// # Errors
    /// An option is invalid, or contradicts another one.
    pub fn create(&self, name: &str) -> Result<NewKeyspace, InvalidField> {
        if !may_be_called(name) {
            return fail(
                "name",
                format!(
                    "{name:?} is no name for a keyspace: use 1 to 64 letters, digits, dots, \
                     hyphens and underscores"
                ),
            );
        }
        let (mode, division) = self.divided()?;
        let backups = self.checked_backups()?.unwrap_or(1);
        let min_in_sync = self.checked_min_in_sync()?.unwrap_or(1);
        if min_in_sync > backups + 1 {
            let copies = backups + 1;
            return fail(
                "min_in_sync",
                format!(
                    "--min-in-sync {min_in_sync} can never hold with --backups {backups}: \
                     at most {copies} copies exist"
                ),
            );
        }
        // What is on disk comes back with its node.
        let unsaid = match self.durability.unwrap_or_default() {
            Durability::None => OnLoss::Reset {
                after_ms: RESET_AFTER_MS,
            },
            Durability::Log => OnLoss::Wait,
        };
        Ok(NewKeyspace {
            name: name.to_owned(),
            mode,
            division,
            backups,
            min_in_sync,
            on_loss: self.on_loss.map_or(unsaid, |policy| policy.0),
            durability: self.durability,
            ordered: self.ordered,
            default_ttl_ms: self.default_ttl.and_then(Lifetime::millis),
            eviction: self.eviction.map_or(Eviction::None, |policy| policy.0),
            rules: self.checked_rules()?.unwrap_or_default(),
        })
    }

    /// How its keys are divided. An option of another mode is an error; it is not ignored silently.
    fn divided(&self) -> Result<(Mode, Division), InvalidField> {
        let mode = self.mode.unwrap_or(KeyspaceMode::Fixed);
        let strange = [
            (
                ("partitions", "--partitions"),
                KeyspaceMode::Fixed,
                self.partitions.is_some(),
            ),
            (
                ("tokens", "--tokens"),
                KeyspaceMode::Ring,
                self.tokens.is_some(),
            ),
            (
                ("random_tokens", "--random-tokens"),
                KeyspaceMode::Ring,
                self.random_tokens,
            ),
            (
                ("split_at", "--split-at"),
                KeyspaceMode::Range,
                !self.split_at.is_empty(),
            ),
        ];
        if let Some(((field, flag), of, _)) = strange
            .into_iter()
            .find(|(_, of, said)| *said && *of != mode)
        {
            let (of, mode) = (of.name(), mode.name());
            let why = format!("{flag} is for --mode {of}, and this is --mode {mode}");
            return fail(field, why);
        }
        match mode {
            KeyspaceMode::Fixed => {
                let partitions = self.partitions.unwrap_or(PARTITIONS);
                if !partitions.is_power_of_two() || usize::from(partitions) > PARTITIONS_MAX {
                    let max = PARTITIONS_MAX;
                    return fail(
                        "partitions",
                        format!(
                            "--partitions {partitions} is not a power of two up to {max}: \
                             the default is {PARTITIONS}"
                        ),
                    );
                }
                Ok((Mode::Fixed { partitions }, Division::Slots))
            }
            KeyspaceMode::Ring => {
                let tokens = self.tokens.unwrap_or(TOKENS);
                if !(1..=TOKENS_EACH_MAX).contains(&tokens) {
                    return fail(
                        "tokens",
                        format!(
                            "--tokens {tokens} is not 1 to {TOKENS_EACH_MAX}: \
                             the default is {TOKENS}"
                        ),
                    );
                }
                Ok((
                    Mode::Ring {
                        tokens,
                        random: self.random_tokens,
                    },
                    Division::no_arcs(),
                ))
            }
            KeyspaceMode::Range => {
                let division = Division::split_at(self.split_at.iter().map(|split| &split.0));
                Ok((
                    Mode::Range,
                    division.map_err(|why| {
                        InvalidField::new("split_at", format!("--split-at: {why}"))
                    })?,
                ))
            }
        }
    }

    /// The fields that only a new keyspace takes.
    pub(crate) const MADE_WITH: [&str; 5] =
        ["mode", "tokens", "random_tokens", "split_at", "ordered"];

    /// A change of the keyspace of this name.
    ///
    /// # Errors
    /// No option is given, one is invalid, or one cannot be altered.
    pub fn alter(&self, name: &str) -> Result<AdminRequest, InvalidField> {
        let said = [
            self.mode.is_some(),
            self.tokens.is_some(),
            self.random_tokens,
            !self.split_at.is_empty(),
            self.ordered,
        ];
        let made_with = Self::MADE_WITH.into_iter().zip(said);
        if let Some((field, _)) = made_with.into_iter().find(|(_, said)| *said) {
            return fail(
                field,
                "the mode of a keyspace, its tokens, its order and its first splits cannot be \
                 altered: `doyen keyspace split` splits a range, and --partitions doubles those \
                 of a fixed keyspace",
            );
        }
        let change = KeyspaceChange {
            backups: self.checked_backups()?,
            min_in_sync: self.checked_min_in_sync()?,
            on_loss: self.on_loss.map(|policy| policy.0),
            default_ttl_ms: self.default_ttl.map(Lifetime::millis),
            eviction: self.eviction.map(|policy| policy.0),
            rules: self.checked_rules()?,
            partitions: self.partitions,
            durability: self.durability,
        };
        if change == KeyspaceChange::default() {
            return fail(
                "backups",
                "say what to alter: --backups, --min-in-sync, --on-loss, --durability, \
                 --default-ttl, --eviction, --partitions, --rule or --no-rules",
            );
        }
        Ok(AdminRequest::AlterKeyspace {
            name: name.to_owned(),
            change,
        })
    }

    fn checked_backups(&self) -> Result<Option<u8>, InvalidField> {
        match self.backups {
            Some(backups) if backups > BACKUPS_MAX => fail(
                "backups",
                format!(
                    "--backups {backups} is more than {BACKUPS_MAX}, the most that Doyen keeps"
                ),
            ),
            backups => Ok(backups),
        }
    }

    fn checked_rules(&self) -> Result<Option<Vec<Rule>>, InvalidField> {
        let Some(rules) = &self.rules else {
            return Ok(None);
        };
        let rules: Vec<Rule> = rules.iter().map(|text| text.0.clone()).collect();
        rule::check(&rules).map_err(|why| InvalidField::new("rules", format!("--rule: {why}")))?;
        Ok(Some(rules))
    }

    fn checked_min_in_sync(&self) -> Result<Option<u8>, InvalidField> {
        match self.min_in_sync {
            Some(0) => fail("min_in_sync", "--min-in-sync 0 is too low: give at least 1"),
            copies => Ok(copies),
        }
    }
}

impl KeyspaceMode {
    const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Ring => "ring",
            Self::Range => "range",
        }
    }
}

/// For serde, which passes a reference.
#[expect(clippy::trivially_copy_pass_by_ref)]
const fn is_false(said: &bool) -> bool {
    !*said
}

fn fail<T>(field: &'static str, why: impl Into<String>) -> Result<T, InvalidField> {
    Err(InvalidField::new(field, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_options_are_refused_with_a_hint() {
        let wrong = |options: KeyspaceOptions| options.create("k").expect_err("it cannot hold").why;
        assert!(wrong(KeyspaceOptions::new().partitions(1000)).contains("power of two"));
        assert!(wrong(KeyspaceOptions::new().backups(7)).contains("more than 6"));
        assert!(wrong(KeyspaceOptions::new().ring(0)).contains("1 to 256"));
        assert!(wrong(KeyspaceOptions::new().ring(257)).contains("1 to 256"));
        assert!(
            wrong(KeyspaceOptions::new().ring(16).partitions(64))
                .contains("--partitions is for --mode fixed")
        );
        assert!(
            wrong(KeyspaceOptions {
                tokens: Some(4),
                ..KeyspaceOptions::new()
            })
            .contains("--tokens is for --mode ring")
        );
        assert!(
            wrong(KeyspaceOptions {
                mode: Some(KeyspaceMode::Ring),
                ..KeyspaceOptions::new().ranges(["a"])
            })
            .contains("--split-at is for --mode range")
        );
        assert!(
            wrong(KeyspaceOptions::new().ranges(["b", "a"]))
                .contains("split 2 stands behind a greater one")
        );
        assert!(
            wrong(KeyspaceOptions::new().ranges(["a", "a"])).contains("split 2 is there twice")
        );
        assert!(wrong(KeyspaceOptions::new().ranges([""])).contains("empty"));
        assert!(wrong(KeyspaceOptions::new().min_in_sync(0)).contains("at least 1"));
        assert!(wrong(KeyspaceOptions::new().min_in_sync(3)).contains("at most 2 copies"));
        let rules = ["primary in zone=a", "copies not in zone=a"]
            .map(|text| text.parse().expect("it is a rule"));
        assert!(wrong(KeyspaceOptions::new().rules(rules)).contains("contradict each other"));
    }

    #[test]
    fn a_split_is_any_bytes_as_people_write_them() {
        for (text, bytes) in [
            ("user:7", &b"user:7"[..]),
            (r"a\x00\xffb", b"a\0\xffb"),
            (r"\\n\n", b"\\n\n"),
            ("ü", "ü".as_bytes()),
        ] {
            let split: SplitKey = text.parse().expect("it is a key");
            assert_eq!(split.0, bytes, "{text}");
            assert_eq!(split.to_string().parse::<SplitKey>(), Ok(split));
        }
        for text in [r"\", r"\x", r"\x0", r"\xzz", r"\q"] {
            assert!(text.parse::<SplitKey>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_alteration_says_what_changes() {
        assert!(KeyspaceOptions::new().alter("k").is_err());
        assert!(
            KeyspaceOptions::new()
                .ranges(["a"])
                .backups(1)
                .alter("k")
                .is_err()
        );
        let Ok(AdminRequest::AlterKeyspace { change, .. }) =
            KeyspaceOptions::new().default_ttl(None).alter("k")
        else {
            panic!("it is an alteration")
        };
        assert_eq!(
            change,
            KeyspaceChange {
                default_ttl_ms: Some(None),
                ..KeyspaceChange::default()
            }
        );
    }

    #[test]
    fn a_keyspace_on_disk_waits_for_lost_copies_unless_another_policy_is_given() {
        let reset = OnLoss::Reset { after_ms: 5_000 };
        let durable = KeyspaceOptions::new().durability(Durability::Log);
        let made = |options: KeyspaceOptions| options.create("k").expect("it can hold");
        assert_eq!(made(durable.clone()).on_loss, OnLoss::Wait);
        assert_eq!(made(durable.clone()).durability, Some(Durability::Log));
        assert_eq!(made(durable.on_loss(reset)).on_loss, reset);
        let default = made(KeyspaceOptions::new());
        assert_ne!(default.on_loss, OnLoss::Wait);
    }

    #[test]
    fn options_survive_a_round_trip_through_json() {
        let options = KeyspaceOptions::new()
            .partitions(8)
            .on_loss(OnLoss::Wait)
            .durability(Durability::Log)
            .default_ttl(Some(Duration::from_secs(90)));
        let options = options
            .eviction(Eviction::Lru)
            .rules(["copies 1 per zone".parse().expect("it is a rule")]);
        let text = serde_json::to_string(&options).expect("it can be written");
        assert_eq!(
            text,
            concat!(
                r#"{"partitions":8,"on_loss":"wait","durability":"log","default_ttl":"90s","#,
                r#""eviction":"lru","rules":["copies 1 per zone"]}"#
            )
        );
        assert_eq!(
            serde_json::from_str::<KeyspaceOptions>(&text).expect("it can be read"),
            options
        );
        assert!(serde_json::from_str::<KeyspaceOptions>(r#"{"partition": 8}"#).is_err());
        assert!(serde_json::from_str::<KeyspaceOptions>(r#"{"eviction": "lfu"}"#).is_err());
        assert!(
            serde_json::from_str::<KeyspaceOptions>(r#"{"rules": ["primary in colour=red"]}"#)
                .is_err()
        );
    }
}
