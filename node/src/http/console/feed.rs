//! What open pages show, kept up to date.
//!
//! ```text
//!   first page opens ──> looks::keep() ──> sections, each as JSON text
//!                                            │ a number that rises with each change
//!   stream of a page ── sends those that changed ─┘   and events as they happen
//!   last page closes ──> looks::keep() ends
//! ```
//!
//! A section whose text is as before is not sent again, so a quiet cluster costs a page nothing but
//! signs of life. The cluster is asked once for all pages.

use super::super::HttpState;
use super::super::credentials::{CredentialSource, HttpCaller};
use super::super::events::missing;
use super::super::failure::{HttpAnswer, HttpFailure};
use super::super::server_sent::{self, SseSource, sent};
use super::hour::ClusterSample;
use super::looks;
use crate::events::{ClusterEvent, Events};
use crate::history::INTERVAL;
use axum::extract::{Extension, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use doyen_placement::access::TokenRole;
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Pages that may be open at a time.
const PAGES_MAX: usize = 32;

/// A part of what pages show.
#[derive(Debug, Clone)]
struct Section {
    /// Rises with each change of any section.
    number: u64,
    json: Arc<str>,
    /// It names keys, so only a token of this role gets it.
    role: TokenRole,
}

/// What is kept for open pages.
#[derive(Debug, Default)]
struct Kept {
    sections: BTreeMap<&'static str, Section>,
    hour: Option<KeptHour>,
    /// Whether [`looks::keep`] runs.
    runs: bool,
}

/// The last hour of the cluster. Pages that have it need further samples alone.
#[derive(Debug)]
struct KeptHour {
    /// The number of the change with which all pages got it.
    changed: u64,
    /// The number of the last sample.
    last: u64,
    /// Oldest first.
    sums: VecDeque<ClusterSample>,
}

/// Shows the cluster to the pages that are open.
#[derive(Debug)]
pub(in super::super) struct ConsoleFeed {
    /// A lock, because the state of HTTP is shared. One thread runs all that takes it.
    kept: Mutex<Kept>,
    /// The number of the last change.
    changed: watch::Sender<u64>,
}

impl ConsoleFeed {
    pub(in super::super) fn new() -> Self {
        Self {
            kept: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // No holder of the lock panics, and each change leaves the whole consistent.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page opens. The first one starts the looks.
    fn open(&self, state: &Arc<HttpState>) -> HttpAnswer<watch::Receiver<u64>> {
        if self.changed.receiver_count() >= PAGES_MAX {
            let why = format!("{PAGES_MAX} pages are open at this node: close one, or use another");
            return Err(HttpFailure(StatusCode::TOO_MANY_REQUESTS, why));
        }
        let mut page = self.changed.subscribe();
        page.mark_changed();
        let runs = std::mem::replace(&mut self.lock().runs, true);
        if !runs {
            tokio::spawn(looks::keep(state.clone()));
        }
        Ok(page)
    }

    /// Waits until no page is open any more. Then nothing is kept.
    pub(super) async fn closed(&self) {
        loop {
            self.changed.closed().await;
            // A page may have been opened since the last one closed.
            if self.changed.receiver_count() == 0 {
                *self.lock() = Kept::default();
                return;
            }
        }
    }

    /// Shows a section, if its text is another than before.
    pub(super) fn show(&self, name: &'static str, role: TokenRole, content: &impl Serialize) {
        // What is shown are texts, numbers, and lists of them.
        let json: Arc<str> = serde_json::to_string(content).unwrap_or_default().into();
        let mut kept = self.lock();
        if kept
            .sections
            .get(name)
            .is_some_and(|before| before.json == json)
        {
            return;
        }
        let number = *self.changed.borrow() + 1;
        let section = Section { number, json, role };
        kept.sections.insert(name, section);
        drop(kept);
        self.changed.send_replace(number);
    }

    /// Keeps the last hour of the cluster, up to the sample of this number. If former sums have
    /// changed, pages get all of it again.
    pub(super) fn show_hour(&self, last: u64, sums: &VecDeque<ClusterSample>, mended: bool) {
        let mut kept = self.lock();
        let before = kept.hour.as_ref().map(|hour| hour.changed);
        let next = *self.changed.borrow() + 1;
        let changed = before.filter(|_| !mended).unwrap_or(next);
        let sums = sums.clone();
        kept.hour = Some(KeptHour {
            changed,
            last,
            sums,
        });
        drop(kept);
        if changed == next {
            self.changed.send_replace(next);
        }
    }

    /// The sections that changed after this number, as server-sent events, and the last number.
    fn since(&self, seen: u64, role: TokenRole) -> (String, u64) {
        let (kept, mut text) = (self.lock(), String::new());
        let mut last = seen;
        if let Some(hour) = kept.hour.as_ref().filter(|hour| hour.changed > seen) {
            last = hour.changed;
            let (number, seconds) = (hour.last, INTERVAL.as_secs());
            let all = json!({ "number": number, "seconds": seconds, "samples": hour.sums });
            text += &sent("hour", &all.to_string());
        }
        for (name, section) in &kept.sections {
            last = last.max(section.number);
            if section.number > seen && section.role <= role {
                text += &sent(name, &section.json);
            }
        }
        (text, last)
    }
}

/// What a caller may see at this moment. Where Redis clients need a password, or have users of
/// their own, keys are not for everyone on this machine.
fn role(state: &HttpState, caller: &HttpCaller) -> TokenRole {
    let guarded = state.guarded || state.credentials.has_users();
    match caller.source {
        CredentialSource::Open if guarded => TokenRole::Read,
        _ => caller.role,
    }
}

/// How far the stream of a page has got.
struct ConsoleSource {
    /// What is sent first.
    hello: Option<String>,
    page: watch::Receiver<u64>,
    seen: u64,
    events: Events,
    state: Arc<HttpState>,
    caller: HttpCaller,
}

impl SseSource for ConsoleSource {
    async fn next(&mut self) -> Option<String> {
        if let Some(hello) = self.hello.take() {
            return Some(hello);
        }
        loop {
            tokio::select! {
                changed = self.page.changed() => {
                    changed.ok()?;
                    let role = role(&self.state, &self.caller);
                    let (text, last) = self.state.feed.since(self.seen, role);
                    self.seen = last;
                    if !text.is_empty() {
                        return Some(text);
                    }
                }
                event = self.events.next() => return Some(match event? {
                    ClusterEvent::Event(event) => {
                        sent("happened", &serde_json::to_string(&event).unwrap_or_default())
                    }
                    ClusterEvent::Lagged(count) => missing(count),
                }),
            }
        }
    }
}

/// Sends everything that a page shows, and then what changes.
pub(in super::super) async fn stream(
    Shared(state): Shared<Arc<HttpState>>,
    Extension(caller): Extension<HttpCaller>,
    headers: HeaderMap,
) -> HttpAnswer<Response> {
    server_sent::from_own_page(&headers)?;
    let page = state.feed.open(&state)?;
    let role = role(&state, &caller);
    let users = state.credentials.may_change_users(&caller.source);
    let hello = json!({
        "node": state.identity.name(),
        "version": env!("CARGO_PKG_VERSION"),
        "caller": caller.source.to_string(),
        "role": role.to_string(),
        "may_change_users": users,
        "may_read_values": users && role == TokenRole::Operate,
        "seconds": INTERVAL.as_secs(),
    });
    let source = ConsoleSource {
        hello: Some(sent("hello", &hello.to_string())),
        page,
        seen: 0,
        events: state.admin.events().after(0),
        state: state.clone(),
        caller: caller.clone(),
    };
    Ok(server_sent::follow(state, caller, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_sent_when_it_changes_and_to_whom_may_see_it() {
        let feed = ConsoleFeed::new();
        feed.show("status", TokenRole::Read, &1);
        feed.show("busiest", TokenRole::Operate, &"key");
        let (text, seen) = feed.since(0, TokenRole::Read);
        assert_eq!(text, "event: status\ndata: 1\n\n");
        let (text, _) = feed.since(0, TokenRole::Operate);
        assert!(text.contains("busiest"));
        feed.show("status", TokenRole::Read, &1);
        assert_eq!(feed.since(seen, TokenRole::Operate), (String::new(), seen));
        feed.show("status", TokenRole::Read, &2);
        let (text, _) = feed.since(seen, TokenRole::Read);
        assert_eq!(text, "event: status\ndata: 2\n\n");
    }

    #[test]
    fn a_page_that_has_the_hour_gets_it_again_only_if_former_sums_have_changed() {
        let feed = ConsoleFeed::new();
        let sums = VecDeque::from([ClusterSample::default()]);
        feed.show_hour(7, &sums, false);
        let (text, seen) = feed.since(0, TokenRole::Read);
        assert!(
            text.starts_with("event: hour\ndata: {\"number\":7,"),
            "{text}"
        );
        feed.show_hour(8, &sums, false);
        assert_eq!(feed.since(seen, TokenRole::Read), (String::new(), seen));
        let (text, _) = feed.since(0, TokenRole::Read);
        assert!(
            text.contains("\"number\":8"),
            "a page that opens now: {text}"
        );
        feed.show_hour(9, &sums, true);
        let (text, _) = feed.since(seen, TokenRole::Read);
        assert!(text.contains("\"number\":9"), "{text}");
    }

    #[tokio::test]
    async fn nothing_is_kept_once_the_last_page_has_closed() {
        let feed = ConsoleFeed::new();
        let page = feed.changed.subscribe();
        feed.show("status", TokenRole::Read, &1);
        drop(page);
        feed.closed().await;
        assert_eq!(feed.since(0, TokenRole::Operate), (String::new(), 0));
    }
}
