//! Keyspaces as people ask for them. [`KeyspaceOptions`] is at once the flags of `doyen keyspace`, the JSON of HTTP and what the library
//! takes; what was not said has the default of a cluster's first keyspace.

use crate::config::ConfigError;
use crate::config::value::{Lifetime, LossPolicy, RESET_AFTER_MS, RuleText};
use doyen_gossip::agreement::AdminRequest;
use doyen_placement::planner::{KeyspaceChange, NewKeyspace};
use doyen_placement::table::validate::may_be_called;
use doyen_placement::{Mode, OnLoss, Rule, rule};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Partitions where nothing is said.
const PARTITIONS: u16 = 1024;
/// Backups at most.
const BACKUPS_MAX: u8 = 6;

/// What is wanted of a keyspace: of a new one, or of one that is to be altered.
///
/// ```
/// use doyen::KeyspaceOptions;
/// let orders = KeyspaceOptions::new().partitions(64).backups(2).min_in_sync(2);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[must_use]
pub struct KeyspaceOptions {
    /// How many partitions there are, a power of two up to 16384 [default: 1024]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partitions: Option<u16>,
    /// Copies beside the primary, 0 to 6 [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backups: Option<u8>,
    /// With how many copies, the primary among them, writes are still acknowledged [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min_in_sync: Option<u8>,
    /// What happens when every copy of a partition is lost: wait, or reset:60s to begin empty after that time [default: reset:60s]
    #[arg(long, value_name = "POLICY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) on_loss: Option<LossPolicy>,
    /// Expiry for keys that are written without one, or none [default: none]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_ttl: Option<Lifetime>,
    /// Which members may hold and lead its partitions: 'primary in zone=a', 'copies not in rack=r1', 'copies 1 per zone'; as often as there are rules
    #[arg(long = "rule", value_name = "RULE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rules: Option<Vec<RuleText>>,
}

impl KeyspaceOptions {
    /// Nothing said yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many partitions there are: a power of two up to 16384. It cannot be altered.
    pub const fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// Copies beside the primary, at most 6.
    pub const fn backups(mut self, backups: u8) -> Self {
        self.backups = Some(backups);
        self
    }

    /// With how many copies, the primary among them, writes are still acknowledged: 1 to 1 + backups.
    pub const fn min_in_sync(mut self, copies: u8) -> Self {
        self.min_in_sync = Some(copies);
        self
    }

    /// What happens when every in-sync copy of a partition is gone.
    pub const fn on_loss(mut self, policy: OnLoss) -> Self {
        self.on_loss = Some(LossPolicy(policy));
        self
    }

    /// Expiry for keys that are written without one; `None`: they stay.
    pub const fn default_ttl(mut self, lifetime: Option<Duration>) -> Self {
        self.default_ttl = Some(Lifetime(lifetime));
        self
    }

    /// Which members may hold and lead its partitions: these rules, and no others. They come before keeping copies apart and before
    /// balance; no rule makes copies fewer.
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules = Some(rules.into_iter().map(RuleText).collect());
        self
    }

    /// A new keyspace of this name.
    pub(crate) fn create(&self, name: &str) -> Result<NewKeyspace, ConfigError> {
        if !may_be_called(name) {
            return fail(format!("{name:?} is no name for a keyspace: 1 to 64 letters, digits, dots, hyphens and underscores"));
        }
        let partitions = self.partitions.unwrap_or(PARTITIONS);
        if !partitions.is_power_of_two() || partitions > 16_384 {
            return fail(format!("--partitions {partitions} is not a power of two up to 16384: the default is {PARTITIONS}"));
        }
        let backups = self.checked_backups()?.unwrap_or(1);
        let min_in_sync = self.checked_min_in_sync()?.unwrap_or(1);
        if min_in_sync > backups + 1 {
            let copies = backups + 1;
            return fail(format!("--min-in-sync {min_in_sync} can never hold with --backups {backups}: at most {copies} copies exist"));
        }
        Ok(NewKeyspace {
            name: name.to_owned(),
            mode: Mode::Fixed { partitions },
            backups,
            min_in_sync,
            on_loss: self.on_loss.map_or(OnLoss::Reset { after_ms: RESET_AFTER_MS }, |policy| policy.0),
            default_ttl_ms: self.default_ttl.and_then(Lifetime::millis),
            rules: self.checked_rules()?.unwrap_or_default(),
        })
    }

    /// A change of the keyspace of this name.
    pub(crate) fn alter(&self, name: &str) -> Result<AdminRequest, ConfigError> {
        if self.partitions.is_some() {
            return fail("the number of partitions of a keyspace cannot be altered: create another keyspace".into());
        }
        let change = KeyspaceChange {
            backups: self.checked_backups()?,
            min_in_sync: self.checked_min_in_sync()?,
            on_loss: self.on_loss.map(|policy| policy.0),
            default_ttl_ms: self.default_ttl.map(Lifetime::millis),
            rules: self.checked_rules()?,
        };
        if change == KeyspaceChange::default() {
            return fail("say what to alter: --backups, --min-in-sync, --on-loss, --default-ttl, --rule or --no-rules".into());
        }
        Ok(AdminRequest::AlterKeyspace { name: name.to_owned(), change })
    }

    fn checked_backups(&self) -> Result<Option<u8>, ConfigError> {
        match self.backups {
            Some(backups) if backups > BACKUPS_MAX => {
                fail(format!("--backups {backups} is more than {BACKUPS_MAX}, the most that Doyen keeps"))
            }
            backups => Ok(backups),
        }
    }

    fn checked_rules(&self) -> Result<Option<Vec<Rule>>, ConfigError> {
        let Some(rules) = &self.rules else { return Ok(None) };
        let rules: Vec<Rule> = rules.iter().map(|text| text.0.clone()).collect();
        rule::check(&rules).map_err(|why| ConfigError(format!("--rule: {why}")))?;
        Ok(Some(rules))
    }

    fn checked_min_in_sync(&self) -> Result<Option<u8>, ConfigError> {
        match self.min_in_sync {
            Some(0) => fail("--min-in-sync 0 makes no sense: at least 1".into()),
            copies => Ok(copies),
        }
    }
}

/// That there is no keyspace of this name, and which there are.
pub(crate) fn unknown(name: &str, known: &str) -> String {
    format!("there is no keyspace {name:?}: there are {known}")
}

fn fail<T>(message: String) -> Result<T, ConfigError> {
    Err(ConfigError(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_hold_is_refused_with_what_would() {
        let wrong = |options: KeyspaceOptions| options.create("k").expect_err("it cannot hold").0;
        assert!(wrong(KeyspaceOptions::new().partitions(1000)).contains("power of two"));
        assert!(wrong(KeyspaceOptions::new().backups(7)).contains("more than 6"));
        assert!(wrong(KeyspaceOptions::new().min_in_sync(0)).contains("at least 1"));
        assert!(wrong(KeyspaceOptions::new().min_in_sync(3)).contains("at most 2 copies"));
        let rules = ["primary in zone=a", "copies not in zone=a"].map(|text| text.parse().expect("it is a rule"));
        assert!(wrong(KeyspaceOptions::new().rules(rules)).contains("contradict each other"));
    }

    #[test]
    fn an_alteration_says_what_changes() {
        assert!(KeyspaceOptions::new().alter("k").is_err());
        assert!(KeyspaceOptions::new().partitions(8).backups(1).alter("k").is_err());
        let Ok(AdminRequest::AlterKeyspace { change, .. }) = KeyspaceOptions::new().default_ttl(None).alter("k") else {
            panic!("it is an alteration")
        };
        assert_eq!(change, KeyspaceChange { default_ttl_ms: Some(None), ..KeyspaceChange::default() });
    }

    #[test]
    fn what_travels_as_json_arrives_as_it_was() {
        let options = KeyspaceOptions::new().partitions(8).on_loss(OnLoss::Wait).default_ttl(Some(Duration::from_secs(90)));
        let options = options.rules(["copies 1 per zone".parse().expect("it is a rule")]);
        let text = serde_json::to_string(&options).expect("it can be written");
        assert_eq!(text, r#"{"partitions":8,"on_loss":"wait","default_ttl":"90s","rules":["copies 1 per zone"]}"#);
        assert_eq!(serde_json::from_str::<KeyspaceOptions>(&text).expect("it can be read"), options);
        assert!(serde_json::from_str::<KeyspaceOptions>(r#"{"partition": 8}"#).is_err());
        assert!(serde_json::from_str::<KeyspaceOptions>(r#"{"rules": ["primary in colour=red"]}"#).is_err());
    }
}
