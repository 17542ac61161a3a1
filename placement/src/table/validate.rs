//! What makes a table valid. Tables of peers are checked before anything acts on them.

use super::{
    Addresses, Keyspace, Member, MemberState, Mode, Partition, ReplicaState, Reshape, Role, Table,
};
use crate::division::{Cut, Division, SPLIT_BYTES_MAX};
use crate::hash::SLOTS;
use crate::id::{ClusterId, KeyspaceId, MapId, MemberId, PartitionId, PartitionRef, THREADS_MAX};
use crate::level::LEVELS;
use crate::rule::{self, RulesError};
use std::collections::BTreeSet;

/// Members of a cluster.
pub const MEMBERS_MAX: usize = 1000;
/// Voters of a cluster.
pub const VOTERS_MAX: usize = 63;
/// Keyspaces of a cluster.
pub const KEYSPACES_MAX: usize = 64;
/// Partitions of a keyspace.
pub const PARTITIONS_MAX: usize = SLOTS as usize;
/// Partitions of all keyspaces together.
pub const PARTITIONS_ALL_MAX: usize = 1 << 16;
/// Bytes of the splits of all keyspaces together, at most: a table must fit into one message.
pub const SPLIT_BYTES_ALL_MAX: usize = 4 << 20;
/// Tokens that a member of weight 100 brings, at most.
pub const TOKENS_EACH_MAX: u16 = 256;
/// Splits and merges under way in a keyspace.
pub const RESHAPED_MAX: usize = 64;
/// What numbers of partitions stay below.
pub const PARTITION_ID_MAX: u32 = 1 << 31;
/// Copies of a partition beside the primary, as a keyspace may ask for them.
pub const BACKUPS_MAX: u8 = 6;
/// Copies of a partition while it moves: those that there are and those that shall be.
pub const REPLICAS_MAX: usize = 32;
/// Maps of a cluster.
pub const MAPS_MAX: usize = 10_000;
/// Bytes of a name: of a member, a keyspace, a map, a zone, a rack, a host.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of the host name at which clients reach a member.
pub const HOSTNAME_BYTES_MAX: usize = 255;
/// Largest capacity of a member; 100 is the default, 1 the least.
pub const WEIGHT_MAX: u32 = 100_000;

/// What terms, versions, ages and epochs stay below, so that counting on from a peer's number
/// cannot overflow.
pub const COUNT_MAX: u64 = 1 << 62;
/// Likewise for lineages.
pub const LINEAGE_MAX: u32 = 1 << 30;

/// Why a table is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// More of something than there may be.
    #[error("too many {what}: at most {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// A term, a version or an age is absurdly high.
    #[error("a term, a version or an age is out of range")]
    Count,
    /// A name is empty or too long.
    #[error("the name of a {what} must have 1 to {max} bytes", max = NAME_BYTES_MAX)]
    Name {
        /// Of what.
        what: &'static str,
    },
    /// Two things share a name.
    #[error("two {what} are called {name:?}")]
    SameName {
        /// What they are.
        what: &'static str,
        /// Their name.
        name: String,
    },
    /// A member's weight is out of range.
    #[error("member {0}: the weight must be 1 to {WEIGHT_MAX}")]
    Weight(MemberId),
    /// Two members share an id, or they do not stand in order of age.
    #[error("member {0} is named twice or stands out of order of age")]
    MemberOrder(MemberId),
    /// A member bears an id of the numbers that are for clients.
    #[error("member {0} has an id of those that are for clients")]
    ClientId(MemberId),
    /// The host name of a member is none.
    #[error("the host name of member {0} must have 1 to {max} letters, digits, dots, hyphens and \
         underscores", max = HOSTNAME_BYTES_MAX)]
    Hostname(MemberId),
    /// A member bears the id of a thread, or names ports of its threads that cannot be.
    #[error("member {id}: {why}")]
    Threads {
        /// The member.
        id: MemberId,
        /// What is wrong.
        why: &'static str,
    },
    /// The settings name schedulers that do not exist.
    #[error("the settings name schedulers that do not exist")]
    Schedulers,
    /// What the settings say of moves contradicts itself.
    #[error("the settings say of moves what contradicts itself")]
    Balancing,
    /// The cluster is 0, which marks bytes that say their level.
    #[error("a cluster must not have the number 0")]
    Cluster,
    /// The level is one that this program does not speak.
    #[error("the table has level {0}, and this program knows the levels {least} to {most}: update \
         the program", least = LEVELS.0, most = LEVELS.1)]
    Level(u16),
    /// There is no voter.
    #[error("a table needs a voter")]
    NoVoter,
    /// A voter is no member, is silent, or stands out of order of age.
    #[error("voter {0} is no member that answers, or stands out of order of age")]
    Voter(MemberId),
    /// Keyspaces do not stand in order of id.
    #[error(
        "keyspace {0} is named twice, stands out of order or has a number that was not given yet"
    )]
    KeyspaceOrder(KeyspaceId),
    /// A keyspace asks for what there cannot be.
    #[error("keyspace {name:?}: {why}")]
    Keyspace {
        /// The keyspace's name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Rules of a keyspace are none, or contradict each other.
    #[error("keyspace {name:?}: {why}")]
    Rules {
        /// The keyspace's name.
        name: String,
        /// What is wrong with them.
        why: RulesError,
    },
    /// A partition contradicts itself or the members.
    #[error("partition {at}: {why}")]
    Partition {
        /// The partition.
        at: PartitionRef,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A map has id 0, or maps do not stand in order of id.
    #[error("map {0} is named twice, stands out of order or has a number that was not given yet")]
    MapOrder(MapId),
    /// A map lives in a keyspace that is not there.
    #[error("map {0} lives in no keyspace of this table")]
    MapKeyspace(MapId),
}

impl Table {
    /// Checks what every table must hold to.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.cluster == ClusterId(0) {
            return Err(Invalid::Cluster);
        }
        if !(LEVELS.0..=LEVELS.1).contains(&self.level) {
            return Err(Invalid::Level(self.level));
        }
        if self.term.0.max(self.version.0).max(self.next_age.0) > COUNT_MAX {
            return Err(Invalid::Count);
        }
        if !self.settings.schedulers.exist() {
            return Err(Invalid::Schedulers);
        }
        if !self.settings.balancing.is_valid() {
            return Err(Invalid::Balancing);
        }
        self.validate_members()?;
        self.validate_voters()?;
        self.validate_keyspaces()?;
        self.validate_maps()
    }

    fn validate_members(&self) -> Result<(), Invalid> {
        at_most("members", MEMBERS_MAX, self.members.len())?;
        let mut ids = BTreeSet::new();
        let mut names = BTreeSet::new();
        let mut younger_than = None;
        for member in &self.members {
            member.validate()?;
            if !ids.insert(member.id)
                || younger_than >= Some(member.age)
                || member.age >= self.next_age
            {
                return Err(Invalid::MemberOrder(member.id));
            }
            younger_than = Some(member.age);
            unique("members", &mut names, &member.name)?;
        }
        Ok(())
    }

    fn validate_voters(&self) -> Result<(), Invalid> {
        at_most(
            "voters",
            VOTERS_MAX.min(self.settings.voters_max.into()),
            self.voters.len(),
        )?;
        if self.voters.is_empty() {
            return Err(Invalid::NoVoter);
        }
        // Voters are a subsequence of the members, which stand in order of age.
        let mut members = self.members.iter();
        for &voter in &self.voters {
            match members.find(|m| m.id == voter) {
                Some(member) if member.state != MemberState::Silent => {}
                _ => return Err(Invalid::Voter(voter)),
            }
        }
        Ok(())
    }

    fn validate_keyspaces(&self) -> Result<(), Invalid> {
        at_most("keyspaces", KEYSPACES_MAX, self.keyspaces.len())?;
        // Whoever is not assigned yet will be.
        let partitions = self.keyspaces.iter().map(Keyspace::count).sum();
        at_most(
            "partitions of all keyspaces together",
            PARTITIONS_ALL_MAX,
            partitions,
        )?;
        let splits = self.keyspaces.iter().map(|k| {
            if let Division::Ranges(ranges) = &k.division {
                ranges.bytes()
            } else {
                0
            }
        });
        at_most(
            "bytes of splits of all keyspaces together",
            SPLIT_BYTES_ALL_MAX,
            splits.sum(),
        )?;
        let holders: BTreeSet<MemberId> = self
            .members
            .iter()
            .filter(|m| m.role == Role::Data)
            .map(|m| m.id)
            .collect();
        let mut names = BTreeSet::new();
        let mut after = None;
        for keyspace in &self.keyspaces {
            if after >= Some(keyspace.id) || keyspace.id >= self.next_keyspace {
                return Err(Invalid::KeyspaceOrder(keyspace.id));
            }
            after = Some(keyspace.id);
            keyspace.validate(&holders)?;
            unique("keyspaces", &mut names, &keyspace.name)?;
        }
        Ok(())
    }

    fn validate_maps(&self) -> Result<(), Invalid> {
        at_most("maps", MAPS_MAX, self.maps.len())?;
        let mut names = BTreeSet::new();
        // Map 0 always exists and is not listed.
        let mut after = MapId(0);
        for map in &self.maps {
            if after >= map.id || map.id >= self.next_map {
                return Err(Invalid::MapOrder(map.id));
            }
            after = map.id;
            name("map", &map.name)?;
            unique("maps", &mut names, &map.name)?;
            if self.keyspace(map.keyspace).is_none() {
                return Err(Invalid::MapKeyspace(map.id));
            }
        }
        Ok(())
    }
}

impl Member {
    /// Checks what a member says of itself. A newcomer's word is checked with this before it is
    /// admitted.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn validate(&self) -> Result<(), Invalid> {
        name("member", &self.name)?;
        if self.id.is_client() {
            return Err(Invalid::ClientId(self.id));
        }
        self.validate_threads()
            .map_err(|why| Invalid::Threads { id: self.id, why })?;
        if !self.addresses.hostname.as_deref().is_none_or(may_be_host) {
            return Err(Invalid::Hostname(self.id));
        }
        for part in [
            &self.location.zone,
            &self.location.rack,
            &self.location.host,
        ] {
            if part.len() > NAME_BYTES_MAX {
                return Err(Invalid::Name { what: "location" });
            }
        }
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            return Err(Invalid::Weight(self.id));
        }
        Ok(())
    }

    fn validate_threads(&self) -> Result<(), &'static str> {
        if self.id.thread_number() != 0 {
            return Err("its id is one of those that are for further data threads");
        }
        let Addresses {
            data,
            resp_cluster,
            further,
            ..
        } = &self.addresses;
        if further.len() >= usize::from(THREADS_MAX) {
            return Err("it has more than 16 data threads");
        }
        if further
            .iter()
            .any(|ports| ports.resp_cluster.is_some() != resp_cluster.is_some())
        {
            return Err(
                "either all of its data threads answer as a Redis Cluster node or none does",
            );
        }
        let twice = |own: &[u16]| {
            own.iter()
                .enumerate()
                .any(|(place, port)| *port == 0 || own[..place].contains(port))
        };
        let data: Vec<u16> = std::iter::once(data.port())
            .chain(further.iter().map(|ports| ports.data))
            .collect();
        let resp: Vec<u16> = resp_cluster
            .iter()
            .map(|a| a.port())
            .chain(further.iter().filter_map(|ports| ports.resp_cluster))
            .collect();
        if !further.is_empty() && (twice(&data) || twice(&resp)) {
            return Err("two of its data threads are reached at the same port, or one at none");
        }
        Ok(())
    }
}

/// Whether this may be the host name at which clients reach a member: it stands in lines of text
/// that they read.
fn may_be_host(name: &str) -> bool {
    let may = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
    (1..=HOSTNAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(may)
}

/// Whether a keyspace may have this name: it stands in addresses of HTTP, in metrics and on
/// terminals as it is.
#[must_use]
pub fn may_be_called(name: &str) -> bool {
    let may = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(may)
}

impl Keyspace {
    fn validate(&self, holders: &BTreeSet<MemberId>) -> Result<(), Invalid> {
        let wrong = |why| {
            Err(Invalid::Keyspace {
                name: self.name.clone(),
                why,
            })
        };
        if !may_be_called(&self.name) {
            return wrong(
                "its name must have 1 to 64 letters, digits, dots, hyphens and underscores",
            );
        }
        match (self.mode, &self.division) {
            (Mode::Fixed { partitions }, Division::Slots | Division::Runs(_)) => {
                if !partitions.is_power_of_two() || usize::from(partitions) > PARTITIONS_MAX {
                    return wrong("the number of partitions must be a power of two up to 16384");
                }
            }
            (Mode::Ring { tokens, .. }, Division::Arcs(_)) => {
                if !(1..=TOKENS_EACH_MAX).contains(&tokens) {
                    return wrong("a member must bring 1 to 256 tokens");
                }
            }
            (Mode::Range, Division::Ranges(_)) => {}
            _ => return wrong("its keys are divided otherwise than its mode says"),
        }
        if self.backups > BACKUPS_MAX {
            return wrong("at most 6 backups");
        }
        if self.min_in_sync == 0 || self.min_in_sync > self.backups + 1 {
            return wrong("min in sync must be 1 to 1 + backups");
        }
        rule::check(&self.rules).map_err(|why| Invalid::Rules {
            name: self.name.clone(),
            why,
        })?;
        if !self.partitions.is_empty() && self.partitions.len() != self.count() {
            return wrong("either every partition is assigned or none is");
        }
        let divided = self.division.partitions();
        if matches!(self.mode, Mode::Ring { .. }) && divided.len() != self.partitions.len() {
            return wrong("its arcs are others than its partitions");
        }
        // Each has a number of its own, and there are as many, so that they are those of the
        // partitions.
        let is_there = |id: PartitionId| match (&self.division, self.partitions.is_empty()) {
            (Division::Slots, _) | (_, true) => (id.0 as usize) < self.count(),
            _ => self.place(id).is_some(),
        };
        if divided.iter().any(|p| !is_there(*p)) {
            return wrong("keys are divided among partitions that are not there");
        }
        let mut after = None;
        for partition in &self.partitions {
            let at = PartitionRef {
                keyspace: self.id,
                partition: partition.id,
            };
            if after >= Some(partition.id)
                || (self.division == Division::Slots && !is_there(partition.id))
            {
                return Err(Invalid::Partition {
                    at,
                    why: "is there twice, stands out of order or has no slots",
                });
            }
            after = Some(partition.id);
            partition
                .validate(holders)
                .map_err(|why| Invalid::Partition { at, why })?;
        }
        self.validate_reshaping()
    }

    fn validate_reshaping(&self) -> Result<(), Invalid> {
        let wrong = |why| {
            Err(Invalid::Keyspace {
                name: self.name.clone(),
                why,
            })
        };
        if self.next_partition().0 > PARTITION_ID_MAX {
            return wrong("the number of a partition is out of range");
        }
        at_most(
            "splits and merges under way in a keyspace",
            RESHAPED_MAX,
            self.reshaping.under_way.len(),
        )?;
        let mut taking_part = BTreeSet::new();
        for reshape in &self.reshaping.under_way {
            if reshape
                .partitions()
                .any(|p| self.place(p).is_none() || !taking_part.insert(p))
            {
                return wrong(
                    "a partition that is split or merged is not there, or is there twice",
                );
            }
            if let Reshape::Split {
                cut: Cut::Key { key, .. },
                ..
            } = reshape
                && key.len() > SPLIT_BYTES_MAX
            {
                return wrong("a key to split at is too long");
            }
        }
        Ok(())
    }
}

impl Partition {
    fn validate(&self, holders: &BTreeSet<MemberId>) -> Result<(), &'static str> {
        if self.since > self.epoch {
            return Err("the tenure began after the present epoch");
        }
        if self.epoch.0 > COUNT_MAX || self.lineage.0 > LINEAGE_MAX {
            return Err("the epoch or the lineage is out of range");
        }
        if self.replicas.len() > REPLICAS_MAX {
            return Err("too many replicas");
        }
        if self
            .replicas
            .first()
            .is_none_or(|primary| primary.state != ReplicaState::InSync)
        {
            return Err("the primary must be there and in sync");
        }
        if !self
            .replicas
            .is_sorted_by_key(|r| r.state == ReplicaState::Learner)
        {
            return Err("in-sync replicas must stand before learners");
        }
        distinct_holders(self.replicas.iter().map(|r| r.member), holders)?;
        if self.from.len() > 2
            || self
                .from
                .iter()
                .any(|from| from.partition >= self.id || from.behind_ms > COUNT_MAX)
        {
            return Err("comes from partitions that it cannot come from");
        }
        match &self.goal {
            Some(goal) if goal.is_empty() || goal.len() > REPLICAS_MAX => {
                Err("a goal names 1 to 32 members")
            }
            Some(goal) => distinct_holders(goal.iter().copied(), holders),
            None => Ok(()),
        }
    }
}

/// Lists are short (`REPLICAS_MAX`): looking back beats a set, and this runs for every partition of
/// every table.
fn distinct_holders(
    members: impl Iterator<Item = MemberId> + Clone,
    holders: &BTreeSet<MemberId>,
) -> Result<(), &'static str> {
    for (place, member) in members.clone().enumerate() {
        if members.clone().take(place).any(|earlier| earlier == member) {
            return Err("names a member twice");
        }
        if !holders.contains(&member) {
            return Err("names somebody who is no member that holds data");
        }
    }
    Ok(())
}

fn name(what: &'static str, name: &str) -> Result<(), Invalid> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        Err(Invalid::Name { what })
    } else {
        Ok(())
    }
}

fn unique<'a>(
    what: &'static str,
    names: &mut BTreeSet<&'a str>,
    name: &'a str,
) -> Result<(), Invalid> {
    if names.insert(name) {
        Ok(())
    } else {
        Err(Invalid::SameName {
            what,
            name: name.into(),
        })
    }
}

fn at_most(what: &'static str, max: usize, count: usize) -> Result<(), Invalid> {
    if count > max {
        Err(Invalid::TooMany { what, max })
    } else {
        Ok(())
    }
}
