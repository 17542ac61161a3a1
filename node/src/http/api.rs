//! What can be asked by HTTP: each report and each change is one row, with its path, what it needs,
//! its body, what the audit log shows of it, and what it does. `routes` serves the rows, the
//! [client](super::client) and so the command line ask by them, and a test compares them with
//! docs/http.md.
//!
//! What refuses a change is said by the method of [`Admin`](crate::Admin) that makes it, and
//! `failure` gives each refusal its status.

#[cfg(feature = "console")]
use super::console;
use super::events::EventsAnswer;
use super::failure::HttpAnswer;
use super::guard::RouteNeeds::{Data, Operate, Read, Users};
use super::row::{ChangeBody, HttpReport, HttpRow, Verb, act, answer, report};
use super::{events, probes, reports};
use crate::admin::balance::{self, BalanceOptions, CancelRequest};
use crate::admin::keyspace::{KeyspaceOptions, SplitRequest};
use crate::admin::maps::MapLimitOptions;
use crate::admin::{AdminError, InvalidField};
use crate::hex::{hex, unhex};
use crate::report::examination::Examination;
use crate::report::loads::{LoadsReport, Placement};
use crate::report::maps::MapSizeReport;
use crate::report::moves::{BalanceReport, MovesReport};
use crate::report::rebalance::{PLAN_BYTES_MAX, RebalancePlan};
use crate::report::split::{HalfKeys, HalfReport};
use crate::report::status::{ClusterReport, KeyspaceReport};
use crate::report::table::TableReport;
use crate::report::tokens::{TokenReport, role};
use crate::report::trust::TrustReport;
#[cfg(feature = "resp")]
use crate::report::users::UserReport;
use crate::report::weights::WeightReport;
use axum::http::Method;
use axum::routing::get;
use doyen_gossip::agreement::VotersGone;
use doyen_placement::access::TokenRole;
#[cfg(feature = "resp")]
use doyen_placement::access::USER_RULES_BYTES_MAX;
use doyen_placement::words::{PARTITIONS, counted};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Largest body for a keyspace: 4 MiB of splits. Each of their bytes may be written as five.
pub(super) const KEYSPACE_BYTES_MAX: usize = 24 << 20;

const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

/// Every row.
pub(super) static ALL: &[&dyn HttpRow] = &[
    &HEALTHZ,
    &READYZ,
    &METRICS,
    &STATUS,
    &EVENTS,
    &EXAMINATION,
    #[cfg(feature = "console")]
    &CONSOLE_PAGE,
    #[cfg(feature = "console")]
    &CONSOLE_FILE,
    #[cfg(feature = "console")]
    &CONSOLE_STREAM,
    #[cfg(feature = "console")]
    &CONSOLE_HISTORY,
    #[cfg(feature = "console")]
    &CONSOLE_LOCATE,
    #[cfg(feature = "console")]
    &CONSOLE_CLIENTS,
    #[cfg(feature = "console")]
    &CONSOLE_KEYS,
    #[cfg(feature = "console")]
    &CONSOLE_VALUE,
    &KEYSPACES,
    &KEYSPACE,
    &MAPS,
    &BALANCE,
    &MOVES,
    &TABLE,
    &LOADS,
    &PLACEMENT,
    &REBALANCE,
    &SPLIT,
    &SPLIT_KEYS,
    &TRUST,
    &TOKENS,
    &WEIGHTS,
    #[cfg(feature = "resp")]
    &USERS,
    &CREATE_KEYSPACE,
    &ALTER_KEYSPACE,
    &DROP_KEYSPACE,
    &SPLIT_RANGE,
    &MERGE_RANGES,
    &LIMIT_MAP,
    &DROP_MAP,
    &APPLY_PLAN,
    &SCHEDULE,
    &SET_BALANCE,
    &CANCEL_MOVES,
    &DRAIN,
    &FILL,
    &REMOVE_LOST,
    &FORGET,
    &FORGET_ALL,
    &RECOVER,
    &KEEP_HALF,
    &CREATE_TOKEN,
    &REVOKE_TOKEN,
    &ALLOW_WEIGHT,
    &FORGET_WEIGHT,
    #[cfg(feature = "console")]
    &CONSOLE_WRITE_KEY,
    #[cfg(feature = "console")]
    &CONSOLE_EXPIRE_KEY,
    #[cfg(feature = "console")]
    &CONSOLE_DELETE_KEY,
    #[cfg(feature = "resp")]
    &SET_USER,
    #[cfg(feature = "resp")]
    &REMOVE_USER,
];

// ---- reports for orchestrators and Prometheus

static HEALTHZ: HttpReport<Value> = HttpReport::open("/healthz", || get(probes::healthz));
static READYZ: HttpReport<Value> = HttpReport::open("/readyz", || get(probes::readyz));
static METRICS: HttpReport<String> = HttpReport::new("/metrics", Read, || get(probes::metrics));

// ---- the console

#[cfg(feature = "console")]
static CONSOLE_PAGE: HttpReport<String> = HttpReport::open("/", || get(console::index));
#[cfg(feature = "console")]
static CONSOLE_FILE: HttpReport<String> =
    HttpReport::open("/console/files/{name}", || get(console::file));
#[cfg(feature = "console")]
static CONSOLE_STREAM: HttpReport<String> =
    HttpReport::new("/console/stream", Read, || get(console::stream));
#[cfg(feature = "console")]
static CONSOLE_HISTORY: HttpReport<Value> =
    HttpReport::new("/console/history", Read, || get(console::history));
#[cfg(feature = "console")]
static CONSOLE_LOCATE: HttpReport<Value> =
    HttpReport::new("/console/locate", Data, || get(console::locate));

#[cfg(feature = "console")]
static CONSOLE_CLIENTS: HttpReport<Value> =
    HttpReport::new("/console/clients", Data, || get(console::clients));
#[cfg(feature = "console")]
static CONSOLE_KEYS: HttpReport<Value> =
    HttpReport::new("/console/keys", Users, || get(console::keys));
#[cfg(feature = "console")]
static CONSOLE_VALUE: HttpReport<Value> =
    HttpReport::new("/console/value", Users, || get(console::value));

// ---- reports on the state of the cluster, without keys

/// Members, keyspaces, and whether all data is safe.
pub static STATUS: HttpReport<ClusterReport> = HttpReport::new("/status", Read, || {
    report(|s| async move { s.admin.status().await })
});

/// What this node has learned of, and the number of the last event.
pub static EVENTS: HttpReport<EventsAnswer<Value>> =
    HttpReport::new("/events", Read, || get(events::events));

/// What this member sees of itself, its machine and its peers. It takes a second.
pub static EXAMINATION: HttpReport<Examination> = HttpReport::new("/examination", Read, || {
    report(|s| async move { HttpAnswer::Ok(s.examiner.examine().await) })
});

/// The keyspaces with their settings.
pub static KEYSPACES: HttpReport<Vec<KeyspaceReport>> = HttpReport::new("/keyspaces", Read, || {
    report(|s| async move { s.admin.keyspaces().await })
});

/// One of them.
static KEYSPACE: HttpReport<KeyspaceReport> =
    HttpReport::new("/keyspaces/{name}", Read, || get(reports::keyspace));

/// What each map and each database holds.
pub static MAPS: HttpReport<Vec<MapSizeReport>> = HttpReport::new("/maps", Read, || {
    report(|s| async move { s.admin.maps().await })
});

/// Whether, when and how fast data moves for balance.
pub static BALANCE: HttpReport<BalanceReport> = HttpReport::new("/balance", Read, || {
    report(|s| async move { s.admin.balance().await })
});

/// Moves with stage, bytes, rate and reason.
pub static MOVES: HttpReport<MovesReport> = HttpReport::new("/moves", Read, || {
    report(|s| async move { s.admin.moves().await })
});

// ---- reports that show where data lies, or keys

/// Which member holds which partition.
pub static TABLE: HttpReport<TableReport> = HttpReport::new("/table", Data, || get(reports::table));

/// Measured loads of partitions and members.
pub static LOADS: HttpReport<LoadsReport> = HttpReport::new("/loads", Data, || {
    report(|s| async move { s.admin.loads().await })
});

/// Input of `doyen simulate --from-cluster`.
pub static PLACEMENT: HttpReport<Placement> = HttpReport::new("/placement", Data, || {
    report(|s| async move { s.admin.placement().await })
});

/// The plan: every step with its reason.
pub static REBALANCE: HttpReport<RebalancePlan> = HttpReport::new("/rebalance", Data, || {
    report(|s| async move { s.admin.rebalance_plan().await })
});

/// What this node acknowledged since the cluster was recovered.
pub static SPLIT: HttpReport<HalfReport> =
    HttpReport::new("/split", Data, || report(reports::split));

/// A page of the keys that were written since then, with their values.
pub static SPLIT_KEYS: HttpReport<HalfKeys> =
    HttpReport::new("/split/keys", Users, || get(reports::split_keys));

// ---- reports about credentials, and what operators allow

/// What a node trusts. The fingerprints would help to guess a phrase.
pub static TRUST: HttpReport<TrustReport> =
    HttpReport::new("/trust", Operate, || report(reports::trust));

/// The named tokens.
pub static TOKENS: HttpReport<Vec<TokenReport>> = HttpReport::new("/tokens", Operate, || {
    report(|s| async move { s.admin.tokens().await })
});

/// The weights that are allowed.
pub static WEIGHTS: HttpReport<Vec<WeightReport>> = HttpReport::new("/weights", Operate, || {
    report(|s| async move { s.admin.weights().await })
});

/// The users of Redis clients.
#[cfg(feature = "resp")]
pub static USERS: HttpReport<Vec<UserReport>> = HttpReport::new("/users", Operate, || {
    report(|s| async move { s.admin.users().await })
});

// ---- changes of keyspaces and maps

/// A keyspace to create: its name beside its options.
#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct NewKeyspaceBody {
    /// Its name.
    pub name: String,
    /// Its options.
    #[serde(flatten)]
    pub options: KeyspaceOptions,
}

impl TryFrom<Map<String, Value>> for NewKeyspaceBody {
    type Error = String;

    fn try_from(mut fields: Map<String, Value>) -> Result<Self, String> {
        let Some(Value::String(name)) = fields.remove("name") else {
            return Err("the name is missing".into());
        };
        let options = serde_json::from_value(fields.into()).map_err(|e| e.to_string())?;
        Ok(Self { name, options })
    }
}

impl ChangeBody for NewKeyspaceBody {
    const EXAMPLE: &'static str = r#"{"name": "NAME", "partitions": 1024, "backups": 1}"#;
    const BYTES_MAX: usize = KEYSPACE_BYTES_MAX;

    fn summary(&self, _: &[u8]) -> String {
        // The options may have keys, at which ranges begin.
        self.name.clone()
    }
}

/// Creates a keyspace.
pub static CREATE_KEYSPACE: Verb<0, NewKeyspaceBody> =
    Verb::new(POST, "/keyspaces", "created", |s, [], new| {
        answer(async move {
            match s.admin.create_keyspace(&new.name, &new.options).await {
                // It is created all the same. `GET /keyspaces/NAME` shows when it is served.
                Ok(()) | Err(AdminError::NotInForce { .. }) => Ok(new.name),
                Err(error) => Err(error.into()),
            }
        })
    });

impl ChangeBody for KeyspaceOptions {
    const EXAMPLE: &'static str = r#"{"backups": 2}"#;
    const REFUSED: &'static [&'static str] = &Self::MADE_WITH;
}

/// Changes a keyspace while it is in use.
pub static ALTER_KEYSPACE: Verb<1, KeyspaceOptions> = Verb::new(
    PATCH,
    "/keyspaces/{name}",
    "altered",
    |s, [name], options| act(async move { s.admin.alter_keyspace(&name, &options).await }),
);

/// Drops a keyspace with all its data.
pub static DROP_KEYSPACE: Verb<1, ()> =
    Verb::new(DELETE, "/keyspaces/{name}", "dropped", |s, [name], ()| {
        act(async move { s.admin.drop_keyspace(&name).await })
    });

impl ChangeBody for SplitRequest {
    const EXAMPLE: &'static str = r#"{"at": "KEY"}"#;

    fn summary(&self, _: &[u8]) -> String {
        "at a key".into()
    }
}

/// Splits a range in two.
pub static SPLIT_RANGE: Verb<1, SplitRequest> = Verb::new(
    POST,
    "/keyspaces/{name}/split",
    "splitting",
    |s, [name], range| act(async move { s.admin.split_at(&name, &range.at.0).await }),
);

/// Merges a range with the one before it.
pub static MERGE_RANGES: Verb<1, SplitRequest> = Verb::new(
    POST,
    "/keyspaces/{name}/merge",
    "merging",
    |s, [name], range| act(async move { s.admin.merge_at(&name, &range.at.0).await }),
);

impl ChangeBody for MapLimitOptions {
    const EXAMPLE: &'static str = r#"{"max_entries": 10000, "max_bytes": "200mb"}"#;
}

/// Sets limits of a map.
pub static LIMIT_MAP: Verb<2, MapLimitOptions> = Verb::new(
    PATCH,
    "/keyspaces/{keyspace}/maps/{map}",
    "limited",
    |s, [keyspace, map], options| {
        act(async move { s.admin.limit_map(&keyspace, &map, &options).await })
    },
);

/// Drops a map with all its entries.
pub static DROP_MAP: Verb<2, ()> = Verb::new(
    DELETE,
    "/keyspaces/{keyspace}/maps/{map}",
    "dropped",
    |s, [keyspace, map], ()| act(async move { s.admin.drop_map(&keyspace, &map).await }),
);

// ---- changes of where data lies

impl ChangeBody for RebalancePlan {
    const EXAMPLE: &'static str = "what GET /rebalance answers";
    const BYTES_MAX: usize = PLAN_BYTES_MAX;

    fn summary(&self, _: &[u8]) -> String {
        format!("of {}", counted(self.goals.len(), PARTITIONS))
    }
}

/// Moves what a plan says.
pub static APPLY_PLAN: Verb<0, RebalancePlan> =
    Verb::new(POST, "/rebalance", "applied", |s, [], plan| {
        answer(async move {
            s.admin.rebalance(&plan).await?;
            Ok(plan.goals.len())
        })
    });

/// The reasons for which copies and primaries move by themselves.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Automatic {
    /// Names of schedulers.
    pub automatic: Vec<String>,
}

impl ChangeBody for Automatic {
    const EXAMPLE: &'static str = concat!(
        r#"{"automatic": ["repair", "drain", "place", "copies", "primaries", "#,
        r#""hot", "splits", "merges"]}"#
    );
}

/// Says for which reasons data moves by itself.
pub static SCHEDULE: Verb<0, Automatic> = Verb::new(
    PATCH,
    "/rebalance",
    "automatic",
    |s, [], Automatic { automatic }| {
        answer(async move {
            let schedulers = balance::schedulers(&automatic).map_err(AdminError::from)?;
            s.admin.rebalance_automatically(schedulers).await?;
            Ok(automatic)
        })
    },
);

impl ChangeBody for BalanceOptions {
    const EXAMPLE: &'static str = r#"{"paused": false, "rate": "adaptive", "window": "always"}"#;
}

/// Says whether, when and how fast data moves for balance.
pub static SET_BALANCE: Verb<0, BalanceOptions> =
    Verb::new(PATCH, "/balance", "changed", |s, [], options| {
        answer(async move {
            s.admin.set_balance(&options).await?;
            Ok(json!(options))
        })
    });

impl ChangeBody for CancelRequest {
    const EXAMPLE: &'static str = r#"{"id": "KEYSPACE/PARTITION"} or {"all": true}"#;
}

/// Gives up a move, or all that are for balance.
pub static CANCEL_MOVES: Verb<0, CancelRequest> =
    Verb::new(POST, "/moves/cancel", "cancelled", |s, [], cancel| {
        answer(async move {
            let id = cancel.which().map_err(AdminError::from)?;
            match id {
                Some(id) => s.admin.cancel_move(id).await?,
                None => s.admin.cancel_moves().await?,
            }
            Ok(id.unwrap_or("all").to_owned())
        })
    });

// ---- changes of members

/// Begins to empty a member.
pub static DRAIN: Verb<1, ()> = Verb::new(
    POST,
    "/members/{name}/drain",
    "draining",
    |s, [name], ()| act(async move { s.admin.drain(&name).await }),
);

/// Ends a drain.
pub static FILL: Verb<1, ()> = Verb::new(
    DELETE,
    "/members/{name}/drain",
    "filling",
    |s, [name], ()| act(async move { s.admin.fill(&name).await }),
);

/// Goes on without a silent member whose machine will not return.
pub static REMOVE_LOST: Verb<1, ()> =
    Verb::new(DELETE, "/members/{name}", "removed", |s, [name], ()| {
        act(async move { s.admin.remove_lost(&name).await })
    });

/// Forgets a member that went.
pub static FORGET: Verb<1, ()> = Verb::new(DELETE, "/gone/{name}", "forgotten", |s, [name], ()| {
    act(async move { s.admin.forget(&name).await })
});

/// Forgets every member that went.
pub static FORGET_ALL: Verb<0, ()> = Verb::new(DELETE, "/gone", "forgotten", |s, [], ()| {
    answer(async move { Ok(s.admin.forget_all().await?) })
});

/// Names of members that are dead and will not come back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecoveryBody {
    /// Their names.
    pub assert_dead: Vec<String>,
    /// How many of how many voters they are: a person must have counted.
    pub gone: String,
    /// Whether nothing shall change: the answer says whether the rest would be refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check: bool,
}

impl ChangeBody for RecoveryBody {
    const EXAMPLE: &'static str = r#"{"assert_dead": ["NAME", ...], "gone": "2/3"}"#;
}

/// Goes on without a majority of the voters.
pub static RECOVER: Verb<0, RecoveryBody> =
    Verb::new(POST, "/recover", "recovered", |s, [], recovery| {
        answer(async move {
            let RecoveryBody {
                assert_dead,
                gone,
                check,
            } = recovery;
            let gone = gone.parse::<VotersGone>();
            let gone = gone.map_err(|why| InvalidField::new("gone", why.to_string()));
            let gone = gone.map_err(AdminError::from)?;
            if check {
                s.admin.may_recover(&assert_dead, gone).await?;
            } else {
                s.admin.recover(&assert_dead, gone).await?;
            }
            Ok(!check)
        })
    });

/// Keeps this half of a split whose halves were both recovered.
pub static KEEP_HALF: Verb<0, ()> = Verb::new(POST, "/split/keep", "kept", |s, [], ()| {
    act(async move { s.admin.keep_half().await })
});

// ---- changes of who may do what

/// A token to make: its hash, never the token.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTokenBody {
    /// What it opens.
    #[serde(with = "role")]
    pub role: TokenRole,
    /// Its SHA-256, in 64 hexadecimal digits.
    pub sha256: String,
}

impl ChangeBody for NewTokenBody {
    const EXAMPLE: &'static str =
        r#"{"role": "read", "sha256": "THE SHA-256 OF THE TOKEN, IN 64 HEXADECIMAL DIGITS"}"#;

    fn summary(&self, _: &[u8]) -> String {
        match unhex::<32>(self.sha256.as_bytes()) {
            Some(hash) => format!("role {}, fingerprint {}", self.role, hex(&hash[..8])),
            None => format!("role {}, without a SHA-256", self.role),
        }
    }
}

/// Makes a named token.
pub static CREATE_TOKEN: Verb<1, NewTokenBody> =
    Verb::new(PUT, "/tokens/{name}", "created", |s, [name], new| {
        act(async move {
            let sha256 = unhex(new.sha256.as_bytes()).ok_or_else(|| {
                let why = format!(
                    "sha256 is no SHA-256: send {}; `doyen token new NAME` does all of it",
                    NewTokenBody::EXAMPLE
                );
                InvalidField::new("sha256", why)
            })?;
            let keeps = s.credentials.needs_names();
            s.admin.add_token(&name, (new.role, sha256), keeps).await
        })
    });

/// Revokes a named token.
pub static REVOKE_TOKEN: Verb<1, ()> =
    Verb::new(DELETE, "/tokens/{name}", "revoked", |s, [name], ()| {
        act(async move {
            let keeps = s.credentials.needs_names();
            s.admin.remove_token(&name, keeps).await
        })
    });

/// A weight to allow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowedWeight {
    /// The highest weight.
    pub weight: u32,
}

impl ChangeBody for AllowedWeight {
    const EXAMPLE: &'static str = r#"{"weight": 1600}"#;
}

/// Allows newcomers of a name a weight.
pub static ALLOW_WEIGHT: Verb<1, AllowedWeight> =
    Verb::new(PUT, "/weights/{name}", "allowed", |s, [name], allowed| {
        act(async move { s.admin.allow_weight(&name, allowed.weight).await })
    });

/// Forgets the weight that is allowed for a name.
pub static FORGET_WEIGHT: Verb<1, ()> =
    Verb::new(DELETE, "/weights/{name}", "forgotten", |s, [name], ()| {
        act(async move { s.admin.forget_weight(&name).await })
    });

// ---- changes of single keys

/// Replaces the value of a key that holds a string.
#[cfg(feature = "console")]
static CONSOLE_WRITE_KEY: Verb<0, console::WrittenKey> =
    Verb::new(PUT, "/console/key", "written", |s, [], wanted| {
        answer(async move { console::write(&s, wanted).await })
    })
    .of_users();

/// Gives a key another lifetime.
#[cfg(feature = "console")]
static CONSOLE_EXPIRE_KEY: Verb<0, console::KeyLifetime> =
    Verb::new(PATCH, "/console/key", "changed", |s, [], wanted| {
        answer(async move { console::expire(&s, wanted).await })
    })
    .of_users();

/// Deletes a key.
#[cfg(feature = "console")]
static CONSOLE_DELETE_KEY: Verb<0, console::DeletedKey> =
    Verb::new(DELETE, "/console/key", "deleted", |s, [], wanted| {
        answer(async move { console::delete(&s, wanted).await })
    })
    .of_users();

// ---- users of Redis clients

/// Rules for a user, as `ACL SETUSER` takes them.
#[cfg(feature = "resp")]
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserRules {
    /// They follow those that the user has.
    pub rules: Vec<String>,
}

#[cfg(feature = "resp")]
impl ChangeBody for UserRules {
    const EXAMPLE: &'static str = r#"{"rules": ["on", ">PASSWORD", "~app:*", "+@read"]}"#;
    // JSON may write each byte of the rules as several.
    const BYTES_MAX: usize = 4 * USER_RULES_BYTES_MAX;

    fn summary(&self, _: &[u8]) -> String {
        // They may have passwords.
        format!("{} rules", self.rules.len())
    }
}

/// Changes a user of Redis clients, or makes one. Unlike `ACL SETUSER`, this needs no user.
#[cfg(feature = "resp")]
pub static SET_USER: Verb<1, UserRules> =
    Verb::new(PUT, "/users/{name}", "set", |s, [name], user: UserRules| {
        act(async move { s.admin.set_user(&name, &user.rules).await })
    })
    .of_users();

/// Removes a user of Redis clients.
#[cfg(feature = "resp")]
pub static REMOVE_USER: Verb<1, ()> =
    Verb::new(DELETE, "/users/{name}", "removed", |s, [name], ()| {
        act(async move { s.admin.remove_user(&name).await })
    })
    .of_users();

/// Reads any bytes as the bodies of requests for a token and for a user.
#[cfg(feature = "fuzz")]
pub(super) fn read(bytes: &[u8]) {
    use super::row::parse;
    if let Ok(new) = parse::<NewTokenBody>(bytes) {
        assert!(!new.summary(bytes).contains(&new.sha256) || new.sha256.len() <= 16);
        if let Some(hash) = unhex::<32>(new.sha256.as_bytes()) {
            assert!(hex(&hash).eq_ignore_ascii_case(&new.sha256));
        }
    }
    #[cfg(feature = "resp")]
    if let Ok(new) = parse::<UserRules>(bytes) {
        use crate::resp::acl::{operator, password::Hashing};
        assert_eq!(new.summary(bytes), format!("{} rules", new.rules.len()));
        let words = new.rules.iter();
        let words = words.flat_map(|rule| rule.split_ascii_whitespace());
        let words = words.map(str::as_bytes);
        let access = doyen_placement::access::AccessSettings::default();
        let _ = operator::set(&access, b"app", words, Hashing::Redis);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::failure::HttpFailure;
    use crate::http::routes::shown;
    use crate::http::row::parse;
    use std::collections::BTreeSet;

    /// The rows of docs/http.md: the request, and what it needs.
    fn documented() -> BTreeSet<(String, Option<&'static str>)> {
        let page = include_str!("../../../docs/http.md");
        let rows = page.lines().filter_map(|line| {
            let row = line.strip_prefix("| `")?;
            let (request, rest) = row.split_once('`')?;
            let (method, path) = request.split_once(' ')?;
            let path = path
                .split('?')
                .next()
                .filter(|path| path.starts_with('/'))?;
            let needs = rest.rsplit('|').nth(1)?.trim();
            let needs = (method == "GET").then_some(needs);
            Some((format!("{method} {path}"), needs))
        });
        rows.collect()
    }

    #[test]
    fn the_documentation_lists_every_row_of_the_table_and_no_other() {
        let rows = ALL.iter().map(|row| {
            let route = row.route();
            let needs = match route.needs {
                None => "none",
                Some(Read) => "`read`",
                Some(Data | Operate) => "`operate`",
                Some(Users) => "the [operators' token](#tokens)",
            };
            let request = format!("{} {}", route.method, shown(route.path));
            (request, (route.method == Method::GET).then_some(needs))
        });
        assert_eq!(documented(), rows.collect());
    }

    #[test]
    fn every_change_needs_operate_and_one_of_users_more() {
        let changes = ALL.iter().map(|row| row.route());
        for route in changes.filter(|route| route.method != Method::GET) {
            let of_users = ["/users", "/console/key"]
                .iter()
                .any(|path| route.path.starts_with(path));
            let needs = if of_users { Users } else { Operate };
            assert_eq!(route.needs, Some(needs), "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn a_weight_is_a_number_and_comes_alone() {
        let read = parse::<AllowedWeight>(br#"{"weight": 1600}"#).map(|allowed| allowed.weight);
        assert!(matches!(read, Ok(1600)));
        for body in [
            "",
            "{}",
            "1600",
            r#"{"weight": "1600"}"#,
            r#"{"weight": -1}"#,
            r#"{"weight": 1.5}"#,
            r#"{"weight": 4294967296}"#,
            r#"{"weight": 1, "weight": 2}"#,
            r#"{"weight": 1, "name": "n1"}"#,
        ] {
            let failure = parse::<AllowedWeight>(body.as_bytes()).map(|_| ()).err();
            assert!(
                matches!(&failure, Some(HttpFailure(status, text))
                    if status.as_u16() == 400 && text.contains(r#"{"weight": 1600}"#)),
                "{body}: {failure:?}"
            );
        }
    }

    #[test]
    fn a_body_that_is_no_such_object_is_refused_with_an_example() {
        for body in ["", "[\"a\"]", "{\"at\": 7}", "{\"to\": \"a\"}", "{", "7"] {
            let failure = parse::<SplitRequest>(body.as_bytes()).map(|_| ()).err();
            assert!(
                matches!(&failure, Some(HttpFailure(status, text))
                    if status.as_u16() == 400 && text.contains(r#"{"at": "KEY"}"#)),
                "{body}: {failure:?}"
            );
        }
    }

    /// `PATCH` listed fields that it refuses.
    #[test]
    fn an_unknown_field_is_answered_with_those_that_the_change_takes() {
        let failure = parse::<KeyspaceOptions>(br#"{"backup": 2}"#).map(|_| ());
        let Err(HttpFailure(_, text)) = failure else {
            panic!("it is unknown")
        };
        assert!(text.contains("unknown field `backup`"), "{text}");
        let takes = "expected one of `partitions`, `backups`, `min_in_sync`, `on_loss`, \
                     `durability`, `default_ttl`, `eviction`, `rules`";
        assert!(text.contains(takes), "{text}");
        assert!(
            !text.contains("mode") && !text.contains("ordered"),
            "{text}"
        );
    }

    /// Regression: the last value was taken silently.
    #[test]
    fn a_key_that_is_given_twice_is_refused_in_every_body() {
        fn told<T: ChangeBody>(body: &str) -> String {
            match parse::<T>(body.as_bytes()) {
                Ok(_) => "taken".to_owned(),
                Err(HttpFailure(status, text)) => format!("{}: {text}", status.as_u16()),
            }
        }
        let twice = r#"{"name": "a", "backups": 1, "backups": 2}"#;
        let nested =
            r#"{"name": "a", "backups": [{"x": null, "y": [1.5, -1, {"x": true}], "x": 0}]}"#;
        let escaped = "{\"name\": \"a\", \"n\\u0061me\": \"b\"}";
        for (body, key) in [(twice, "backups"), (nested, "x"), (escaped, "name")] {
            let why = told::<NewKeyspaceBody>(body);
            assert!(
                why.starts_with("400: ") && why.contains(&format!("`{key}` is given twice")),
                "{body}: {why}"
            );
        }
        let why = told::<RecoveryBody>(r#"{"assert_dead": ["a"], "assert_dead": []}"#);
        assert!(why.contains("`assert_dead` is given twice"), "{why}");
        let uncounted = told::<RecoveryBody>(r#"{"assert_dead": ["a"]}"#);
        assert!(uncounted.contains("missing field `gone`"), "{uncounted}");
        let counted = r#"{"assert_dead": ["a", "a"], "gone": "1/3"}"#;
        assert_eq!(told::<RecoveryBody>(counted), "taken");
    }

    #[test]
    fn a_new_keyspace_is_a_name_beside_options_that_are_known() {
        let read = |body: &str| parse::<NewKeyspaceBody>(body.as_bytes()).map(|new| new.name);
        let read = |body: &str| read(body).map_err(|HttpFailure(_, text)| text);
        assert_eq!(
            read(r#"{"name": "orders", "backups": 2}"#).as_deref(),
            Ok("orders")
        );
        for (body, wrong) in [
            (r#"{"backups": 2}"#, "the name is missing"),
            (r#"{"name": 7}"#, "the name is missing"),
            (r#"{"name": "orders", "backup": 2}"#, "backup"),
        ] {
            let text = read(body).expect_err("it is refused");
            assert!(text.contains(wrong), "{text}");
        }
    }
}
