//! The Redis clients of a member and its slow commands. A member answers for its own: the control
//! thread of this node asks it, and the console there answers.

use super::super::HttpState;
use super::super::credentials::HttpCaller;
use super::super::failure::{HttpAnswer, HttpFailure};
use super::super::reports::table_of;
use crate::client_list::{ClientList, ListedWord, SlowCommand};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State as Shared};
use axum::http::StatusCode;
use doyen_placement::Member;
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Members that may wait for the clients of this node.
const ASKED_MAX: usize = 16;
/// About how many clients an answer lists, of all members together.
const LISTED_MAX: usize = 1_000;
/// How many it lists of each member, at least.
const LISTED_LEAST: usize = 10;
/// What stands for a word that a caller may not read.
const HIDDEN: &str = "…";

/// Parameters of `GET /console/clients`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct ClientsQuery {
    /// All members, if none is named.
    member: Option<String>,
}

/// The clients of a member, or of all.
pub(in super::super) async fn clients(
    Shared(state): Shared<Arc<HttpState>>,
    Extension(caller): Extension<HttpCaller>,
    query: Result<Query<ClientsQuery>, QueryRejection>,
) -> HttpAnswer<Json<Value>> {
    let Query(query) =
        query.map_err(|_| HttpFailure::bad_request("there is /console/clients?member=NAME"))?;
    let table = table_of(&state)?;
    let is_wanted = |m: &Member| query.member.as_ref().is_none_or(|name| m.name == *name);
    let members = table.members.iter().map(|member| &**member);
    let members: Vec<&Member> = members.filter(|member| is_wanted(member)).collect();
    if let (Some(name), []) = (&query.member, &members[..]) {
        let why = format!("there is no member `{name}`: ask GET /status");
        return Err(HttpFailure(StatusCode::NOT_FOUND, why));
    }
    let most = (LISTED_MAX / members.len().max(1)).max(LISTED_LEAST);
    let reads = state.credentials.may_change_users(&caller.source);
    let lists = join_all(members.iter().map(|member| clients_of(&state, member))).await;
    let lists = members.iter().zip(lists).map(|(member, list)| match list {
        Some(list) => shown(&member.name, list, most, reads),
        None => json!({ "name": member.name, "error": NO_ANSWER }),
    });
    Ok(Json(json!({ "members": lists.collect::<Vec<Value>>() })))
}

const NO_ANSWER: &str = "it does not answer: it is busy or cut off, or its HTTP is off (--http). \
                         Look again, or ask it with CLIENT LIST";

/// The clients of a member. `None`: it does not answer.
async fn clients_of(state: &HttpState, member: &Member) -> Option<ClientList> {
    if member.name == state.identity.name() {
        return Some(state.data.clients().await);
    }
    state.control.clients(member.id).await.ok().flatten()
}

/// The list of a member as a caller may see it: `most` clients, and values for those alone that may
/// read all data.
fn shown(name: &str, mut list: ClientList, most: usize, reads_values: bool) -> Value {
    list.more += list.clients.len().saturating_sub(most) as u64;
    list.clients.truncate(most);
    let slow = list.slow.into_iter().map(|slow| {
        let SlowCommand {
            at,
            took_us,
            words,
            client,
        } = slow;
        let word = |word: ListedWord| match word.is_value && !reads_values {
            true => HIDDEN.to_owned(),
            false => word.text,
        };
        let words: Vec<String> = words.into_iter().map(word).collect();
        json!({ "at": at, "took_us": took_us, "words": words, "client": client })
    });
    let slow: Vec<Value> = slow.collect();
    json!({ "name": name, "clients": list.clients, "more": list.more, "slow": slow })
}

/// Answers other members that ask for the clients of this node, until the node stops.
pub(in super::super) async fn answer_members(state: Arc<HttpState>) {
    let (asks, mut asked) = mpsc::channel(ASKED_MAX);
    if state.control.counted().clients_asked.set(asks).is_err() {
        return;
    }
    let mut stopped = state.stopped.clone();
    loop {
        let question = tokio::select! {
            question = asked.recv() => question,
            () = super::super::wait(&mut stopped) => return,
        };
        let Some(question) = question else { return };
        let list = state.data.clients().await;
        state.control.tell_clients(question, list).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_slow_commands_show_to_those_alone_that_may_read_them() {
        let word = |text: &str, is_value| ListedWord {
            text: text.into(),
            is_value,
        };
        let list = ClientList {
            slow: vec![SlowCommand {
                at: 1,
                took_us: 20_000,
                words: vec![word("set", false), word("k", false), word("secret", true)],
                client: "10.0.0.1:1".into(),
            }],
            ..ClientList::default()
        };
        let words = |reads| shown("n1", list.clone(), 10, reads)["slow"][0]["words"].clone();
        assert_eq!(words(false), json!(["set", "k", HIDDEN]));
        assert_eq!(words(true), json!(["set", "k", "secret"]));
    }
}
