//! Which loads wait for which others, so that a loader that asks for its own key, also by way of
//! other keys, fails at once.
//!
//! ```text
//!   load 1 ── its loader asks for 2 ──> load 2 ── its loader asks for 1 ──> the chain has 1: a cycle
//!
//!   here:   load 1 ── waits ──> claim of 2, there      `announced` in the cache of 1: 1 -> 2
//!   there:  load 2 ── waits ──> claim of 1, here       `announced` in the cache of 2: 2 -> 1
//!           each follows what is announced, and so comes back to its own load
//! ```
//! Within a process, a loader runs with its chain (a task-local), and all loads are known. Between
//! processes, a load that waits for the claim of another process writes that into its cache, for
//! some seconds: only if other loads of its own process wait for it in turn, so a load that no
//! loader asked for costs nothing.

use crate::data::DataHandle;
use crate::error::Error;
use bytes::Bytes;
use doyen_engine::cached::ClaimId;
use doyen_engine::op::{Action, Condition, Expiry, Operation, Outcome};
use doyen_placement::{ClusterId, KeyspaceId, MapId};
use futures_util::FutureExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, sync::Arc};
use tokio::sync::Notify;
use tokio::time::timeout;

/// An announcement ends by itself after this long. A load that still waits after half of it looks
/// up its claim again, and announces that.
const ANNOUNCED: Duration = Duration::from_secs(5);
/// The most announcements that are followed.
const HOPS: usize = 32;
/// The keys of announcements begin so. What follows is drawn at random, so no key of a program is
/// one.
const HEAD: &[u8] = b"\0doyen waits\0";

/// A key of a cache.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct WaitEntry {
    pub(super) cluster: Option<ClusterId>,
    pub(super) place: (KeyspaceId, MapId),
    pub(super) key: Bytes,
}

/// A load, and the loads whose loaders asked for it.
#[derive(Clone)]
pub(super) struct Link(Arc<WaitStep>);

struct WaitStep {
    id: ClaimId,
    entry: WaitEntry,
    /// The key, for people.
    shown: String,
    above: Option<Link>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.0.shown).finish()
    }
}

tokio::task_local! {
    static CHAIN: Link;
}

impl Link {
    /// The load whose loader runs this.
    pub(super) fn current() -> Option<Self> {
        CHAIN.try_with(Clone::clone).ok()
    }

    pub(super) fn new(id: ClaimId, entry: WaitEntry, shown: String, above: Option<Self>) -> Self {
        Self(Arc::new(WaitStep {
            id,
            entry,
            shown,
            above,
        }))
    }

    pub(super) fn id(&self) -> ClaimId {
        self.0.id
    }

    /// Runs a loader of this load.
    pub(super) async fn run<T>(self, loader: impl Future<Output = T>) -> T {
        CHAIN.scope(self, loader).await
    }

    /// This load and those above it.
    fn up(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |link| link.0.above.as_ref())
    }

    /// Whether this loader may wait for a key.
    ///
    /// # Errors
    /// The key is being loaded further up.
    pub(super) fn may_ask(&self, entry: &WaitEntry, shown: &str) -> Result<(), Error> {
        let mut path = vec![shown.to_owned()];
        let mut loads = Vec::new();
        for link in self.up() {
            path.push(link.0.shown.clone());
            loads.push(link.id());
            if link.0.entry == *entry {
                let mut waits = waits();
                loads.iter().for_each(|id| waits.has_cycle(*id));
                path.reverse();
                return Err(cycle(&path));
            }
        }
        Ok(())
    }
}

/// The error of loads that wait for each other.
fn cycle(path: &[String]) -> Error {
    Error::LoadCycle(path.join(" -> "))
}

/// All loads of this process.
#[derive(Default)]
struct Waits(BTreeMap<ClaimId, WaitedLoad>);

/// A load that is under way in this process.
struct WaitedLoad {
    link: Link,
    data: DataHandle,
    /// The loads and the claims for which its loader waits.
    waits: Vec<ClaimId>,
    /// The loads whose loaders wait for it.
    waited_for: Vec<ClaimId>,
    /// Another load waits for it, also by way of others.
    is_waited_for: Arc<Notify>,
    in_cycle: bool,
}

/// A lock that is held for moments, because loads are on any thread.
static WAITS: Mutex<Waits> = Mutex::new(Waits(BTreeMap::new()));

fn waits() -> MutexGuard<'static, Waits> {
    // Each change of it is one step.
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waits {
    fn has_cycle(&mut self, id: ClaimId) {
        if let Some(load) = self.0.get_mut(&id) {
            load.in_cycle = true;
        }
    }

    /// The loads from one to another that it waits for, if it does.
    fn path(&self, from: ClaimId, to: ClaimId) -> Option<Vec<ClaimId>> {
        let (mut seen, mut paths) = (BTreeSet::from([from]), vec![vec![from]]);
        while let Some(path) = paths.pop() {
            let last = path[path.len() - 1];
            if last == to {
                return Some(path);
            }
            let next = self.0.get(&last).map_or(&[][..], |load| &load.waits);
            for id in next.iter().filter(|id| seen.insert(**id)) {
                paths.push([&path[..], &[*id]].concat());
            }
        }
        None
    }

    /// The loads that wait for this one, also by way of others.
    fn above(&self, id: ClaimId) -> Vec<ClaimId> {
        let (mut seen, mut found) = (BTreeSet::from([id]), vec![id]);
        let mut at = 0;
        while let Some(of) = found.get(at) {
            let waiting = self.0.get(of).map_or(&[][..], |load| &load.waited_for);
            found.extend(waiting.iter().filter(|id| seen.insert(**id)));
            at += 1;
        }
        found.split_off(1)
    }

    /// Another load waits for this one, and so for those that this one waits for.
    fn tell_below(&self, id: ClaimId) {
        let (mut seen, mut below) = (BTreeSet::from([id]), vec![id]);
        while let Some(load) = below.pop().and_then(|id| self.0.get(&id)) {
            load.is_waited_for.notify_one();
            below.extend(load.waits.iter().filter(|id| seen.insert(**id)));
        }
    }

    fn shown(&self, ids: &[ClaimId]) -> Vec<String> {
        let shown = |id| Some(self.0.get(id)?.link.0.shown.clone());
        ids.iter().filter_map(shown).collect()
    }
}

/// A load is under way, until this is dropped.
pub(super) struct UnderWay(ClaimId);

impl UnderWay {
    pub(super) fn new(link: Link, data: DataHandle) -> Self {
        let id = link.id();
        let load = WaitedLoad {
            link,
            data,
            waits: Vec::new(),
            waited_for: Vec::new(),
            is_waited_for: Arc::default(),
            in_cycle: false,
        };
        waits().0.insert(id, load);
        Self(id)
    }

    /// Whether it waited for itself.
    pub(super) fn in_cycle(&self) -> bool {
        waits().0.get(&self.0).is_some_and(|load| load.in_cycle)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        waits().0.remove(&self.0);
    }
}

/// A load waits for another one, until this is dropped.
#[derive(Debug)]
pub(super) struct WaitingLoad {
    from: ClaimId,
    to: ClaimId,
}

impl WaitingLoad {
    /// # Errors
    /// The other one waits for this one.
    pub(super) fn new(from: ClaimId, to: ClaimId) -> Result<Self, Error> {
        let mut waits = waits();
        if let Some(path) = waits.path(to, from) {
            path.iter().for_each(|id| waits.has_cycle(*id));
            let mut path = waits.shown(&path);
            path.rotate_right(1);
            path.extend(path.first().cloned());
            return Err(cycle(&path));
        }
        if let Some(load) = waits.0.get_mut(&from) {
            load.waits.push(to);
        }
        if let Some(load) = waits.0.get_mut(&to) {
            load.waited_for.push(from);
        }
        waits.tell_below(to);
        Ok(Self { from, to })
    }
}

impl Drop for WaitingLoad {
    fn drop(&mut self) {
        let remove = |from: &mut Vec<ClaimId>, what| {
            if let Some(at) = from.iter().position(|id| *id == what) {
                from.swap_remove(at);
            }
        };
        let mut waits = waits();
        if let Some(load) = waits.0.get_mut(&self.from) {
            remove(&mut load.waits, self.to);
        }
        if let Some(load) = waits.0.get_mut(&self.to) {
            remove(&mut load.waited_for, self.from);
        }
    }
}

/// A load that waits for the claim of another process, for so long as this lives.
pub(super) struct Abroad {
    link: Link,
    data: DataHandle,
    /// For which claim it waits.
    now: Option<WaitingLoad>,
    /// The loads of this process for which that was announced, and how to end it.
    announced: BTreeMap<ClaimId, (DataHandle, Operation)>,
}

impl Abroad {
    pub(super) const fn new(link: Link, data: DataHandle) -> Self {
        Self {
            link,
            data,
            now: None,
            announced: BTreeMap::new(),
        }
    }

    /// The claim of another process is in the way. Returns when this load should look again which
    /// one: if another load waits for this one, others follow what is announced.
    ///
    /// # Errors
    /// The load that has it waits for this one.
    pub(super) async fn watch(&mut self, holder: ClaimId) -> Result<(), Error> {
        self.end_announcements();
        self.now = None;
        self.now = Some(WaitingLoad::new(self.link.id(), holder)?);
        let is_waited_for = {
            let load = waits();
            load.0
                .get(&self.link.id())
                .map(|load| load.is_waited_for.clone())
        };
        let is_waited_for = is_waited_for.unwrap_or_default();
        loop {
            self.announce(holder).await?;
            let more = is_waited_for.notified();
            if self.announced.is_empty() {
                more.await;
            } else if timeout(ANNOUNCED / 2, more).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Says for which claim this load waits to those that follow the loads which wait for it.
    async fn announce(&mut self, holder: ClaimId) -> Result<(), Error> {
        let own = self.link.id();
        let above: Vec<(ClaimId, DataHandle, (KeyspaceId, MapId))> = {
            let waits = waits();
            let of = |id: ClaimId| {
                let load = waits.0.get(&id)?;
                Some((id, load.data.clone(), load.link.0.entry.place))
            };
            waits.above(own).into_iter().filter_map(of).collect()
        };
        if above.is_empty() {
            return Ok(());
        }
        let value = Announced {
            place: self.link.0.entry.place,
            id: holder,
            shown: self.link.0.shown.clone(),
        };
        for (id, data, place) in &above {
            let of = |action| operation(*place, *id, action);
            let ends = (data.clone(), of(Action::Delete));
            if self.announced.insert(*id, ends).is_none() {
                // Without it, a cycle ends with the timeout.
                data.execute(of(value.write())).await;
            }
        }
        let ids: Vec<ClaimId> = above.iter().map(|(id, ..)| *id).collect();
        self.follow(holder, &ids).await
    }

    /// Follows what other processes announced.
    async fn follow(&self, holder: ClaimId, above: &[ClaimId]) -> Result<(), Error> {
        let (mut at, mut path) = ((self.link.0.entry.place, holder), Vec::new());
        for _ in 0..HOPS {
            let (place, id) = at;
            let found = self.data.execute(operation(place, id, Action::Get)).await;
            let Outcome::Bulk(value) = found else {
                return Ok(());
            };
            let Some(next) = Announced::read(&value) else {
                return Ok(());
            };
            path.push(next.shown);
            if above.contains(&next.id) {
                let mut waits = waits();
                let loads = waits.path(next.id, self.link.id()).unwrap_or_default();
                loads.iter().for_each(|id| waits.has_cycle(*id));
                let mut whole = waits.shown(&loads);
                whole.extend(path);
                return Err(cycle(&whole));
            }
            at = (next.place, next.id);
        }
        Ok(())
    }
}

impl Abroad {
    fn end_announcements(&mut self) {
        for (data, deletion) in std::mem::take(&mut self.announced).into_values() {
            // The first poll hands it over.
            let _ = data.execute(deletion).now_or_never();
        }
    }
}

impl Drop for Abroad {
    fn drop(&mut self) {
        self.end_announcements();
    }
}

fn operation(place: (KeyspaceId, MapId), id: ClaimId, action: Action) -> Operation {
    Operation {
        keyspace: place.0,
        map: place.1,
        key: [HEAD, &id].concat().into(),
        action,
    }
}

/// What a load waits for: the claim of an entry of this cache.
///
/// ```text
///   00 │ keyspace 4 │ map 4 │ id 16 │ the key, for people
/// ```
struct Announced {
    place: (KeyspaceId, MapId),
    id: ClaimId,
    shown: String,
}

impl Announced {
    fn write(&self) -> Action {
        let mut value = vec![0];
        value.extend(u32::from(self.place.0.0).to_le_bytes());
        value.extend(self.place.1.0.to_le_bytes());
        value.extend(self.id);
        value.extend(self.shown.as_bytes());
        Action::Set {
            value: value.into(),
            condition: Condition::Always,
            expiry: Expiry::In(ANNOUNCED.as_millis() as i64),
            get: false,
        }
    }

    fn read(value: &[u8]) -> Option<Self> {
        let rest = value.strip_prefix(&[0])?;
        let (keyspace, rest) = rest.split_first_chunk()?;
        let (map, rest) = rest.split_first_chunk()?;
        let (id, shown) = rest.split_first_chunk()?;
        let keyspace = u32::from_le_bytes(*keyspace).try_into().ok()?;
        Some(Self {
            place: (KeyspaceId(keyspace), MapId(u32::from_le_bytes(*map))),
            id: *id,
            shown: String::from_utf8_lossy(shown).into_owned(),
        })
    }
}
