//! Settings of balancing as text: whether, when, how fast and for which reasons data moves. The
//! same texts are flags of `doyen rebalance` and JSON of HTTP.

use super::error::InvalidField;
use crate::config::value::Size;
use doyen_gossip::agreement::BalanceChange;
use doyen_placement::{Balancing, MoveRate, NoScheduler, NoWindow, Paused, Schedulers, Window};
use serde::{Deserialize, Serialize};

/// The body of `PATCH /balance`. Settings that are left out stay as they are.
///
/// ```no_run
/// # async fn example(node: doyen::Node) -> Result<(), doyen::AdminError> {
/// use doyen::admin::balance::BalanceOptions;
///
/// let nightly = BalanceOptions {
///     rate: Some("50mb".to_owned()),
///     window: Some("22:00-06:00".to_owned()),
///     ..BalanceOptions::default()
/// };
/// node.admin().set_balance(&nightly).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalanceOptions {
    /// Whether balancing is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// `adaptive`, or a size per second: `50mb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// `always` or `22:00-06:00`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
}

/// The body of `POST /moves/cancel`.
///
/// ```
/// use doyen::admin::balance::CancelRequest;
///
/// let one = CancelRequest { id: Some("orders/7".to_owned()), all: false };
/// assert_eq!(one.which(), Ok(Some("orders/7")));
/// assert!(CancelRequest { all: true, ..one }.which().is_err(), "one, or all");
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// `KEYSPACE/PARTITION`.
    #[serde(default)]
    pub id: Option<String>,
    /// Every move for balance.
    #[serde(default)]
    pub all: bool,
}

impl BalanceOptions {
    /// The changes that these options ask for: at least one.
    pub(super) fn changes(&self) -> Result<Vec<BalanceChange>, InvalidField> {
        let paused = self.paused.map(|paused| {
            if paused {
                BalanceChange::Pause(Paused::Operator)
            } else {
                BalanceChange::Resume
            }
        });
        let rate = self.rate.as_deref().map(rate).transpose()?;
        let window = self.window.as_deref().map(window).transpose()?;
        let all: Vec<BalanceChange> = paused
            .into_iter()
            .chain(rate.map(BalanceChange::Rate))
            .chain(window.map(BalanceChange::Window))
            .collect();
        if all.is_empty() {
            let why = "say at least one of paused, rate and window";
            return Err(InvalidField::new("paused", why));
        }
        Ok(all)
    }
}

impl CancelRequest {
    /// The move that is meant; `None`: all of them.
    ///
    /// # Errors
    /// The request names none, or one and all.
    pub fn which(&self) -> Result<Option<&str>, InvalidField> {
        match (&self.id, self.all) {
            (Some(id), false) => Ok(Some(id)),
            (None, true) => Ok(None),
            _ => Err(InvalidField::new(
                "id",
                "say either which move, by its id, or all of them",
            )),
        }
    }
}

/// Parses `adaptive` or a size per second.
///
/// ```
/// use doyen::MoveRate;
/// use doyen::admin::balance::rate;
///
/// assert_eq!(rate("50mb"), Ok(MoveRate::Bytes(50 << 20)));
/// assert_eq!(rate("adaptive"), Ok(MoveRate::Adaptive));
/// assert!(rate("1kb").is_err(), "slower than a move may be");
/// ```
///
/// # Errors
/// The text is no size, or less than 64 KiB.
pub fn rate(text: &str) -> Result<MoveRate, InvalidField> {
    if text == "adaptive" {
        return Ok(MoveRate::Adaptive);
    }
    let Size(bytes) = text
        .parse()
        .map_err(|why| InvalidField::new("rate", format!("{why}; or say `adaptive`")))?;
    if bytes < Balancing::RATE_LEAST {
        return Err(too_slow(text));
    }
    Ok(MoveRate::Bytes(bytes))
}

pub(super) fn too_slow(rate: &str) -> InvalidField {
    let least = Balancing::RATE_LEAST >> 10;
    InvalidField::new(
        "rate",
        format!("{rate} a second is too slow for any copy to be made: give at least {least}kb"),
    )
}

/// Parses `always`, which is `None`, or a time of day.
///
/// ```
/// use doyen::admin::balance::window;
///
/// assert_eq!(window("always"), Ok(None));
/// assert_eq!(window("22:00-06:00").unwrap().unwrap().to_string(), "22:00-06:00");
/// assert!(window("at night").is_err());
/// ```
///
/// # Errors
/// The text is no time of day.
pub fn window(text: &str) -> Result<Option<Window>, InvalidField> {
    if text == "always" {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|why: NoWindow| InvalidField::new("window", why.to_string()))
}

/// The schedulers of these names: `repair`, `drain` and so on.
///
/// ```
/// use doyen::admin::balance::schedulers;
/// use doyen::Schedulers;
///
/// let names = ["repair", "drain", "place"].map(str::to_owned);
/// assert_eq!(schedulers(&names), Ok(Schedulers::MANUAL));
/// ```
///
/// # Errors
/// A name is not that of a scheduler.
pub fn schedulers(names: &[String]) -> Result<Schedulers, InvalidField> {
    names
        .iter()
        .map(|name| name.parse())
        .collect::<Result<_, _>>()
        .map_err(|why: NoScheduler| InvalidField::new("automatic", why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_balancing_are_understood_or_refused_in_one_line() {
        let options = |paused, rate: Option<&str>, window: Option<&str>| BalanceOptions {
            paused,
            rate: rate.map(str::to_owned),
            window: window.map(str::to_owned),
        };
        let changes = options(Some(true), Some("50mb"), Some("22:00-06:00"))
            .changes()
            .expect("all three are right");
        assert_eq!(changes[0], BalanceChange::Pause(Paused::Operator));
        assert_eq!(changes[1], BalanceChange::Rate(MoveRate::Bytes(50 << 20)));
        assert_eq!(changes.len(), 3);
        assert_eq!(
            options(None, None, Some("always")).changes(),
            Ok(vec![BalanceChange::Window(None)])
        );
        for (rate, window, field) in [
            (Some("fast"), None, "rate"),
            (Some("1kb"), None, "rate"),
            (None, Some("at night"), "window"),
            (None, None, "paused"),
        ] {
            let wrong = options(None, rate, window).changes().expect_err("wrong");
            assert_eq!(wrong.field, field);
            let why = wrong.to_string();
            assert!(!why.contains('\n') && why.len() < 200, "{why}");
        }
    }

    #[test]
    fn a_cancel_names_one_move_or_all() {
        let which = |id: Option<&str>, all| {
            let request = CancelRequest {
                id: id.map(str::to_owned),
                all,
            };
            request.which().map(|id| id.map(str::to_owned))
        };
        assert_eq!(
            which(Some("default/1"), false),
            Ok(Some("default/1".into()))
        );
        assert_eq!(which(None, true), Ok(None));
        assert!(which(None, false).is_err() && which(Some("default/1"), true).is_err());
    }

    #[test]
    fn schedulers_are_named() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            schedulers(&names)
        };
        assert_eq!(names(&["place", "drain", "repair"]), Ok(Schedulers::MANUAL));
        assert!(names(&["balance"]).is_err_and(|wrong| {
            wrong
                .why
                .contains("repair, drain, place, copies, primaries, hot, splits and merges")
        }));
    }
}
