//! Validity of tables. Tables of peers are checked before any code acts on them.

use super::annex::GONE_MAX;
use super::{
    Addresses, Eviction, Keyspace, Member, MemberState, Mode, Partition, ReplicaState, Reshape,
    Role, Table,
};
use crate::access::{TOKEN_NAME_BYTES_MAX, USER_NAME_BYTES_MAX, USER_RULES_BYTES_MAX};
use crate::division::{Cut, Division, SPLIT_BYTES_MAX};
use crate::durability::Durability;
use crate::hash::SLOTS;
use crate::id::{ClusterId, KeyspaceId, MapId, MemberId, PartitionId, PartitionRef, THREADS_MAX};
use crate::level::{DURABILITY, LEVELS};
use crate::rule::{self, RulesError};
use std::collections::BTreeSet;

/// Limit of members of a cluster.
pub const MEMBERS_MAX: usize = 1000;
/// Limit of voters of a cluster.
pub const VOTERS_MAX: usize = 63;
/// Limit of keyspaces of a cluster.
pub const KEYSPACES_MAX: usize = 64;
/// Limit of partitions of a keyspace.
pub const PARTITIONS_MAX: usize = SLOTS as usize;
/// Limit of partitions of all keyspaces together.
pub const PARTITIONS_ALL_MAX: usize = 1 << 16;
/// Limit of bytes of the splits of all keyspaces together: a table must fit into one message.
pub const SPLIT_BYTES_ALL_MAX: usize = 4 << 20;
/// Limit of tokens that a member of weight 100 brings.
pub const TOKENS_EACH_MAX: u16 = 256;
/// Limit of splits and merges under way in a keyspace.
pub const RESHAPED_MAX: usize = 64;
/// Numbers of partitions are below this.
pub const PARTITION_ID_MAX: u32 = 1 << 31;
/// Limit of copies of a partition beside the primary, as a keyspace may ask for them.
pub const BACKUPS_MAX: u8 = 6;
/// Limit of copies of a partition while it moves: the present ones and those of the goal.
pub const REPLICAS_MAX: usize = 32;
/// Limit of maps of a cluster.
pub const MAPS_MAX: usize = 10_000;
/// Limit of bytes of a name: of a member, a keyspace, a map, a zone, a rack, a host.
pub const NAME_BYTES_MAX: usize = 64;
/// Limit of bytes of the host name at which clients reach a member.
pub const HOSTNAME_BYTES_MAX: usize = 255;
/// Largest capacity of a member; 100 is the default, 1 the least.
pub const WEIGHT_MAX: u32 = 100_000;

/// Terms, versions, ages and epochs are below this, so that counting on from a peer's number cannot
/// overflow.
pub const COUNT_MAX: u64 = 1 << 62;
/// Lineages are below this.
pub const LINEAGE_MAX: u32 = 1 << 30;

/// Why a table is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// There are too many of something.
    #[error("too many {what}: at most {max}")]
    TooMany {
        /// The kind of thing.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The branches are too many, name too many members, or two have one id.
    #[error("the branches of the table are not valid")]
    Branches,
    /// A term, a version or an age is absurdly high.
    #[error("a term, a version or an age is out of range")]
    Count,
    /// A name is empty or too long.
    #[error("the name of a {what} must have 1 to {max} bytes", max = NAME_BYTES_MAX)]
    Name {
        /// The kind of thing.
        what: &'static str,
    },
    /// A name has other characters than those that are seen.
    #[error("the name of a {what} must have visible ASCII characters alone, without spaces")]
    Invisible {
        /// The kind of thing.
        what: &'static str,
    },
    /// Two things share a name.
    #[error("two {what} are called {name:?}")]
    SameName {
        /// The kind of thing.
        what: &'static str,
        /// Their name.
        name: String,
    },
    /// A member's weight is out of range.
    #[error("member {0}: the weight must be 1 to {WEIGHT_MAX}")]
    Weight(MemberId),
    /// Two members share an id, or they are not in order of age.
    #[error("member {0} is named twice or out of order of age")]
    MemberOrder(MemberId),
    /// A member has an id that is for clients.
    #[error("member {0} has an id that is for clients")]
    ClientId(MemberId),
    /// The host name of a member is invalid.
    #[error("the host name of member {0} must have 1 to {max} letters, digits, dots, hyphens and \
         underscores", max = HOSTNAME_BYTES_MAX)]
    Hostname(MemberId),
    /// A member has the id of a thread, or invalid ports of its threads.
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
    /// The settings of moves contradict each other.
    #[error("the settings of moves contradict each other")]
    Balancing,
    /// The cluster is 0, which marks encodings with a level.
    #[error("a cluster must not have the number 0")]
    Cluster,
    /// This program does not speak the level.
    #[error("the table has level {0}, and this program knows the levels {least} to {most}: {todo}",
        least = LEVELS.0, most = LEVELS.1, todo = todo_about_level(*.0))]
    Level(u16),
    /// There is no voter.
    #[error("a table needs a voter")]
    NoVoter,
    /// A voter is no member, is silent, or is out of order of age.
    #[error("voter {0} is no member that answers, or is out of order of age")]
    Voter(MemberId),
    /// Keyspaces are not in order of id.
    #[error("keyspace {0} is named twice, is out of order or has a number that was not given yet")]
    KeyspaceOrder(KeyspaceId),
    /// The settings of a keyspace are invalid.
    #[error("keyspace {name:?}: {why}")]
    Keyspace {
        /// The keyspace's name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A keyspace asks for more copies in sync than it has, or for none.
    #[error("keyspace {name:?}: min in sync must be 1 to {most} with {backups} backups, but is \
         {min_in_sync}: change either", most = backups + 1)]
    MinInSync {
        /// The keyspace's name.
        name: String,
        /// The fewest copies in sync, including the primary.
        min_in_sync: u8,
        /// The copies beside the primary.
        backups: u8,
    },
    /// A rule of a keyspace is invalid, or two of them contradict each other.
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
    /// A map has id 0, or maps are not in order of id.
    #[error("map {0} is named twice, is out of order or has a number that was not given yet")]
    MapOrder(MapId),
    /// The keyspace of a map does not exist.
    #[error("the keyspace of map {0} is not in this table")]
    MapKeyspace(MapId),
    /// The name of a user is empty, too long, or has spaces.
    #[error(
        "the name of a user must have 1 to {USER_NAME_BYTES_MAX} bytes, and no spaces or null characters"
    )]
    UserName,
    /// Users are not in order of name.
    #[error("a user is named twice or out of order")]
    UserOrder,
    /// The rules of a user are too long, or have several lines.
    #[error(
        "the rules of user {0:?} must be one line of at most {USER_RULES_BYTES_MAX} bytes: use \
         patterns and categories in place of long lists"
    )]
    UserRules(String),
    /// The name of a token is empty, too long, or has other characters.
    #[error(
        "the name of a token must have 1 to {TOKEN_NAME_BYTES_MAX} letters, digits, dots, hyphens \
         and underscores, and is not . or .."
    )]
    TokenName,
    /// Tokens are not in order of name.
    #[error("a token is named twice or out of order")]
    TokenOrder,
    /// Two names have the same token, so revoking one of them would not revoke it.
    #[error("the tokens {} and {} are the same: make another one", .0[0], .0[1])]
    SameToken([String; 2]),
    /// A weight that is allowed is out of range.
    #[error("the weight that is allowed for {0:?} must be 1 to {WEIGHT_MAX}")]
    AllowedWeight(String),
    /// Allowed weights are not in order of name.
    #[error("a weight is allowed twice for a name, or out of order")]
    WeightOrder,
    /// A limit of a map is 0.
    #[error("a limit of map {0} is 0: drop the map, or give it a limit of at least 1")]
    MapLimit(MapId),
}

const fn todo_about_level(level: u16) -> &'static str {
    if level < LEVELS.0 {
        "first update all members to the release before, which knows both levels"
    } else {
        "update the program"
    }
}

impl Table {
    /// Checks what must hold of every table.
    ///
    /// # Errors
    /// The first fault that is found.
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
        self.validate_maps()?;
        at_most("members that went", GONE_MAX, self.annex.gone.len())?;
        for gone in &self.annex.gone {
            name("member", &gone.name)?;
        }
        self.annex.validate()?;
        self.access.validate()
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
            unique("members", &mut names, &*member.name, &member.name)?;
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
        // Voters are a subsequence of the members, which are in order of age.
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
        // Partitions that are not assigned yet count, too.
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
            if keyspace.eviction == Eviction::Lfu {
                return Err(Invalid::Keyspace {
                    name: keyspace.name.clone(),
                    why: "only maps with limits evict by frequency (lfu): choose another eviction",
                });
            }
            if keyspace.durability != Durability::None && self.level < DURABILITY {
                return Err(Invalid::Keyspace {
                    name: keyspace.name.clone(),
                    why: "durability log needs members of the newest release: update all of them",
                });
            }
            if after >= Some(keyspace.id) || keyspace.id >= self.next_keyspace {
                return Err(Invalid::KeyspaceOrder(keyspace.id));
            }
            after = Some(keyspace.id);
            keyspace.validate(&holders)?;
            unique("keyspaces", &mut names, &*keyspace.name, &keyspace.name)?;
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
            unique("maps", &mut names, (map.keyspace, &*map.name), &map.name)?;
            if self.keyspace(map.keyspace).is_none() {
                return Err(Invalid::MapKeyspace(map.id));
            }
            let limits = [map.limits.entries, map.limits.bytes, map.limits.idle_ms];
            if limits.contains(&Some(0)) {
                return Err(Invalid::MapLimit(map.id));
            }
        }
        Ok(())
    }
}

impl Member {
    /// Checks a member's own facts. A newcomer is checked with this before it is admitted.
    ///
    /// # Errors
    /// The first fault that is found.
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
            return Err("its id is for further data threads");
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
            return Err("two of its data threads have the same port, or one has port 0");
        }
        Ok(())
    }
}

/// Whether clients may reach a member by this host name: it stands in lines of text that they read.
fn may_be_host(name: &str) -> bool {
    let may = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
    (1..=HOSTNAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(may)
}

/// Whether a keyspace may have this name: it stands unchanged in HTTP paths, in metrics and on
/// terminals.
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
            _ => return wrong("its keys are not divided as its mode requires"),
        }
        if self.durability != Durability::None && !matches!(self.mode, Mode::Fixed { .. }) {
            return wrong(
                "durability log needs slots (mode fixed) for now: use another keyspace, or \
                 durability none",
            );
        }
        if self.backups > BACKUPS_MAX {
            return wrong("at most 6 backups");
        }
        if self.min_in_sync == 0 || self.min_in_sync > self.backups + 1 {
            return Err(Invalid::MinInSync {
                name: self.name.clone(),
                min_in_sync: self.min_in_sync,
                backups: self.backups,
            });
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
            return wrong("its arcs do not match its partitions");
        }
        // Each has its own number, and there are equally many, so they are the partitions.
        let is_there = |id: PartitionId| match (&self.division, self.partitions.is_empty()) {
            (Division::Slots, _) | (_, true) => (id.0 as usize) < self.count(),
            _ => self.place(id).is_some(),
        };
        if divided.iter().any(|p| !is_there(*p)) {
            return wrong("keys are divided among partitions that do not exist");
        }
        let mut after = None;
        for partition in &self.partitions {
            let at = PartitionRef::new(self.id, partition.id);
            if after >= Some(partition.id)
                || (self.division == Division::Slots && !is_there(partition.id))
            {
                return Err(Invalid::Partition {
                    at,
                    why: "is named twice, is out of order or has no slots",
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
                    "a partition that is split or merged does not exist, or is named twice",
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
            return Err("the primary must exist and be in sync");
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

/// Lists are short (`REPLICAS_MAX`): looking back is faster than a set, and this runs for every
/// partition of every table.
fn distinct_holders(
    members: impl Iterator<Item = MemberId> + Clone,
    holders: &BTreeSet<MemberId>,
) -> Result<(), &'static str> {
    for (place, member) in members.clone().enumerate() {
        if members.clone().take(place).any(|earlier| earlier == member) {
            return Err("names a member twice");
        }
        if !holders.contains(&member) {
            return Err("names a process that is no member with data");
        }
    }
    Ok(())
}

pub(crate) fn name(what: &'static str, name: &str) -> Result<(), Invalid> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        Err(Invalid::Name { what })
    } else {
        Ok(())
    }
}

fn unique<T: Ord>(
    what: &'static str,
    known: &mut BTreeSet<T>,
    one: T,
    name: &str,
) -> Result<(), Invalid> {
    if known.insert(one) {
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
