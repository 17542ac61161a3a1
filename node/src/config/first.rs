//! The first table of a cluster.

use super::keyspace::KeyspaceOptions;
use super::{ConfigError, Options, at_least, fail};
use doyen_placement::level::DURABILITY;
use doyen_placement::planner::DEFAULT_KEYSPACE;
use doyen_placement::{
    Assignment, Balancing, Durability, Keyspace, KeyspaceId, Schedulers, Settings,
};

/// What a node writes into the first table, if it is the one that writes it.
/// Example: [`Config`](super::Config).
#[derive(Debug, Clone)]
pub struct FirstTable {
    /// The settings of the cluster.
    pub settings: Settings,
    /// The keyspace `default`.
    pub keyspace: Keyspace,
}

impl FirstTable {
    pub(super) fn resolve(options: &Options) -> Result<Self, ConfigError> {
        Ok(Self {
            keyspace: keyspace(options)?,
            settings: Settings {
                voters_max: at_least("--voters-max", options.voters_max, 1)?.unwrap_or(7),
                members_min: at_least("--members-min", options.members_min, 1)?.unwrap_or(1),
                assignment: options.assignment.map_or(Assignment::RoundRobin, |a| a.0),
                schedulers: Schedulers::ALL,
                balancing: Balancing::default(),
            },
        })
    }
}

fn keyspace(options: &Options) -> Result<Keyspace, ConfigError> {
    let (partitions, backups) = (options.partitions, options.backups);
    let (min_in_sync, on_loss, eviction) = (options.min_in_sync, options.on_loss, options.eviction);
    let durability = options.durability;
    let wanted = KeyspaceOptions {
        partitions,
        backups,
        min_in_sync,
        on_loss,
        durability,
        eviction,
        ..KeyspaceOptions::new()
    };
    if durability == Some(Durability::Log) {
        if options.dir.is_none() && options.witness != Some(true) {
            return fail(
                "--durability log keeps data in the directory of each node: give --dir DIR as well"
                    .into(),
            );
        }
        if options.level_max.is_some_and(|level| level < DURABILITY) {
            return fail(format!(
                "--durability log needs level {DURABILITY}: leave --level-max out"
            ));
        }
    }
    Ok(wanted.create(DEFAULT_KEYSPACE)?.numbered(KeyspaceId(0)))
}
