//! How a client tracks the keys whose values it keeps (`CLIENT TRACKING`), and what it is sent.
//! Which client has which keys is known to its thread (`resp::tracking`).

use crate::resp::command::{CachedReads, TrackingMode, TrackingOptions};
use crate::resp::encode::{Encoder, Protocol};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeSet;

/// Most prefixes of one client: each change is compared with all of them.
const PREFIXES_MAX: usize = 1_024;
/// The channel of invalidations for clients that speak RESP2.
const CHANNEL: &[u8] = b"__redis__:invalidate";

const TOO_MANY_PREFIXES: &str = "ERR too many prefixes: a client may track 1024 at most; track \
    fewer, shorter ones";
const OTHER_MODE: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for this \
    client, and then re-enabling it with a different mode.";
const OTHER_CHOICE: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for \
    this client, and then re-enabling it with a different mode.";

/// How a client tracks keys.
#[derive(Debug)]
pub(crate) struct ClientTracking {
    redirect: Option<u64>,
    keys: Tracked,
    /// It does not hear of its own changes.
    no_loop: bool,
    /// `CLIENT CACHING` was sent for the next command.
    pub(crate) caching: bool,
    /// The connection that gets the invalidations was gone when there was one.
    pub(crate) is_broken: bool,
}

/// What a client tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tracked {
    /// What it reads.
    Reads(CachedReads),
    /// Keys with these prefixes.
    Prefixes(BTreeSet<Bytes>),
}

impl ClientTracking {
    /// `CLIENT TRACKING ON` of a client that tracks in this way already, or not yet.
    ///
    /// # Errors
    /// Redis's texts for what does not go together.
    pub(crate) fn new(before: Option<&Self>, options: TrackingOptions) -> Result<Self, String> {
        let TrackingOptions {
            redirect,
            mode,
            no_loop,
        } = options;
        use CachedReads::{OptIn, OptOut};
        let before = before.map(|before| &before.keys);
        let keys = match (before, mode) {
            (Some(Tracked::Prefixes(_)), TrackingMode::Reads(_))
            | (Some(Tracked::Reads(_)), TrackingMode::Broadcast(_)) => {
                return Err(OTHER_MODE.to_owned());
            }
            (Some(Tracked::Reads(OptIn)), TrackingMode::Reads(OptOut))
            | (Some(Tracked::Reads(OptOut)), TrackingMode::Reads(OptIn)) => {
                return Err(OTHER_CHOICE.to_owned());
            }
            (_, TrackingMode::Reads(reads)) => Tracked::Reads(reads),
            (before, TrackingMode::Broadcast(more)) => {
                let mut all = match before {
                    Some(Tracked::Prefixes(all)) => all.clone(),
                    _ => BTreeSet::new(),
                };
                if all.len() + more.len() > PREFIXES_MAX {
                    return Err(TOO_MANY_PREFIXES.to_owned());
                }
                do_not_overlap(&all, &more)?;
                if more.is_empty() {
                    // All keys.
                    all.insert(Bytes::new());
                }
                all.extend(more);
                Tracked::Prefixes(all)
            }
        };
        Ok(Self {
            redirect,
            keys,
            no_loop,
            caching: false,
            is_broken: false,
        })
    }

    /// The connection that gets its invalidations; `None`: the client itself.
    pub(crate) const fn redirect(&self) -> Option<u64> {
        self.redirect
    }

    /// The same as a number, as Redis shows it.
    pub(crate) fn redirection(&self) -> i64 {
        i64::try_from(self.redirect.unwrap_or(0)).unwrap_or(i64::MAX)
    }

    /// Whether it does not hear of its own changes.
    pub(crate) const fn no_loop(&self) -> bool {
        self.no_loop
    }

    /// Whether the client keeps the values that its present command reads.
    pub(crate) fn keeps_reads(&self) -> bool {
        match self.keys {
            Tracked::Reads(CachedReads::All) => true,
            Tracked::Reads(CachedReads::OptIn) => self.caching,
            Tracked::Reads(CachedReads::OptOut) => !self.caching,
            Tracked::Prefixes(_) => false,
        }
    }

    /// The prefixes of its keys in broadcast mode.
    pub(crate) fn prefixes(&self) -> Option<&BTreeSet<Bytes>> {
        match &self.keys {
            Tracked::Reads(_) => None,
            Tracked::Prefixes(prefixes) => Some(prefixes),
        }
    }

    /// `CLIENT CACHING YES` or `NO`.
    ///
    /// # Errors
    /// The client tracks in another way.
    pub(crate) fn give_caching(&mut self, wanted: bool) -> Result<(), &'static str> {
        let reads = if wanted {
            CachedReads::OptIn
        } else {
            CachedReads::OptOut
        };
        if self.keys != Tracked::Reads(reads) {
            return Err(if wanted {
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
            } else {
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."
            });
        }
        self.caching = true;
        Ok(())
    }

    /// Its letters among the flags of `CLIENT LIST`.
    pub(crate) fn letters(&self) -> String {
        let broken = if self.is_broken { "R" } else { "" };
        let broadcast = match self.keys {
            Tracked::Reads(_) => "",
            Tracked::Prefixes(_) => "B",
        };
        format!("t{broken}{broadcast}")
    }

    /// Its words among the flags of `CLIENT TRACKINGINFO`.
    pub(crate) fn words(&self) -> Vec<&'static str> {
        let mut words = vec!["on"];
        let (mode, caching) = match self.keys {
            Tracked::Reads(CachedReads::All) => (None, "caching"),
            Tracked::Reads(CachedReads::OptIn) => (Some("optin"), "caching-yes"),
            Tracked::Reads(CachedReads::OptOut) => (Some("optout"), "caching-no"),
            Tracked::Prefixes(_) => (Some("bcast"), "caching"),
        };
        words.extend(mode);
        words.extend(self.caching.then_some(caching));
        words.extend(self.no_loop.then_some("noloop"));
        words.extend(self.is_broken.then_some("broken_redirect"));
        words
    }
}

/// Whether no prefix begins with another one: a client would be told twice of a key.
fn do_not_overlap(all: &BTreeSet<Bytes>, more: &[Bytes]) -> Result<(), String> {
    let overlap = |one: &Bytes, other: &Bytes| one.starts_with(other) || other.starts_with(one);
    let why = |one: &Bytes, kind: &str, other: &Bytes| {
        format!(
            "ERR Prefix '{}' overlaps with {kind} prefix '{}'. Prefixes for a single client must \
             not overlap.",
            String::from_utf8_lossy(one),
            String::from_utf8_lossy(other)
        )
    };
    for (at, one) in more.iter().enumerate() {
        if let Some(other) = all.iter().find(|other| overlap(one, other)) {
            return Err(why(one, "an existing", other));
        }
        if let Some(other) = more[at + 1..].iter().find(|other| overlap(one, other)) {
            return Err(why(one, "another provided", other));
        }
    }
    Ok(())
}

/// The message that these keys have changed, or that everything is to be forgotten (`None`).
pub(crate) fn invalidation(protocol: Protocol, keys: Option<&[Bytes]>) -> BytesMut {
    let mut bytes = BytesMut::new();
    let mut encoder = Encoder::new(&mut bytes, protocol);
    match protocol {
        Protocol::Resp3 => {
            encoder.push(2);
            encoder.bulk(b"invalidate");
        }
        Protocol::Resp2 => {
            encoder.push(3);
            encoder.bulk(b"message");
            encoder.bulk(CHANNEL);
        }
    }
    match keys {
        Some(keys) => {
            encoder.array(keys.len());
            keys.iter().for_each(|key| encoder.bulk(key));
        }
        None => encoder.nil(),
    }
    bytes
}

/// The message that the connection is gone that gets the invalidations.
pub(crate) fn lost_target(target: i64) -> BytesMut {
    let mut bytes = BytesMut::new();
    let mut encoder = Encoder::new(&mut bytes, Protocol::Resp3);
    encoder.push(2);
    encoder.bulk(b"tracking-redir-broken");
    encoder.integer(target);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracking(
        before: Option<&ClientTracking>,
        mode: TrackingMode,
    ) -> Result<ClientTracking, String> {
        let options = TrackingOptions {
            redirect: None,
            mode,
            no_loop: false,
        };
        ClientTracking::new(before, options)
    }

    fn broadcast(
        before: Option<&ClientTracking>,
        more: &[&'static str],
    ) -> Result<Vec<String>, String> {
        let more = more
            .iter()
            .map(|prefix| Bytes::from_static(prefix.as_bytes()));
        let mode = TrackingMode::Broadcast(more.collect());
        let made = tracking(before, mode)?;
        let prefixes = made.prefixes().into_iter().flatten();
        Ok(prefixes
            .map(|prefix| String::from_utf8_lossy(prefix).into_owned())
            .collect())
    }

    #[test]
    fn prefixes_are_added_if_they_do_not_overlap() {
        assert_eq!(broadcast(None, &[]), Ok(vec![String::new()]));
        let two =
            TrackingMode::Broadcast(vec![Bytes::from_static(b"b:"), Bytes::from_static(b"a:")]);
        let two = tracking(None, two).unwrap();
        assert_eq!(broadcast(Some(&two), &["c:"]).unwrap(), ["a:", "b:", "c:"]);
        let why = broadcast(Some(&two), &["a:x"]).unwrap_err();
        assert!(
            why.starts_with("ERR Prefix 'a:x' overlaps with an existing prefix 'a:'"),
            "{why}"
        );
        let why = broadcast(Some(&two), &["c:", "d", "c"]).unwrap_err();
        assert!(
            why.starts_with("ERR Prefix 'c:' overlaps with another provided prefix 'c'"),
            "{why}"
        );
        let reads = TrackingMode::Reads(CachedReads::All);
        assert_eq!(tracking(Some(&two), reads).unwrap_err(), OTHER_MODE);
    }

    #[test]
    fn the_values_of_some_reads_are_kept_as_the_client_chose() {
        let reads = |reads| tracking(None, TrackingMode::Reads(reads)).unwrap();
        let (mut all, mut opt_in, mut opt_out) = (
            reads(CachedReads::All),
            reads(CachedReads::OptIn),
            reads(CachedReads::OptOut),
        );
        assert!(all.keeps_reads() && !opt_in.keeps_reads() && opt_out.keeps_reads());
        assert!(all.give_caching(true).is_err() && opt_out.give_caching(true).is_err());
        assert!(all.give_caching(false).is_err() && opt_in.give_caching(false).is_err());
        opt_in.give_caching(true).unwrap();
        opt_out.give_caching(false).unwrap();
        assert!(opt_in.keeps_reads() && !opt_out.keeps_reads());
        assert_eq!(opt_in.words(), ["on", "optin", "caching-yes"]);
        let mode = TrackingMode::Reads(CachedReads::OptOut);
        assert_eq!(tracking(Some(&opt_in), mode).unwrap_err(), OTHER_CHOICE);
    }

    #[test]
    fn invalidations_are_those_of_redis_in_both_protocols() {
        let keys = [Bytes::from_static(b"a")];
        let text = |protocol, keys| {
            let bytes = invalidation(protocol, keys);
            String::from_utf8_lossy(&bytes).replace("\r\n", " ")
        };
        let (two, three) = (Protocol::Resp2, Protocol::Resp3);
        assert_eq!(text(three, Some(&keys)), ">2 $10 invalidate *1 $1 a ");
        assert_eq!(text(three, None), ">2 $10 invalidate _ ");
        let head = "*3 $7 message $20 __redis__:invalidate ";
        assert_eq!(text(two, Some(&keys)), format!("{head}*1 $1 a "));
        assert_eq!(text(two, None), format!("{head}$-1 "));
    }
}
