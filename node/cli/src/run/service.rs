//! What systemd knows of a node whose unit has `Type=notify`: that it serves, its role, and that
//! it leaves. Without the variable `NOTIFY_SOCKET`, which such a unit sets, nothing is sent.

use doyen::{ClusterEvent, Error, Event, Node};
use sd_notify::NotifyState;
use std::time::Duration;

/// How often a node that does not serve yet says what it waits for.
const WAITS: Duration = Duration::from_secs(5);
/// What a departure takes beside `--leave-timeout`, and some seconds for a busy machine.
const LEAVING_BESIDE: Duration = Duration::from_secs(10);

/// Sends `READY=1` once the node serves, and its role from then on. Never returns.
pub(super) async fn follow(node: &Node) {
    if std::env::var_os("NOTIFY_SOCKET").is_some() && serves(node).await {
        // Before the first status, so that no change is missed in between.
        let mut events = node.events();
        tell(&[NotifyState::Ready, NotifyState::Status(&role(node).await)]);
        while let Some(event) = events.next().await {
            if changes_roles(&event) {
                tell(&[NotifyState::Status(&role(node).await)]);
            }
        }
    }
    std::future::pending().await
}

/// Sends `STOPPING=1`, and for how long systemd must not kill the process: with that, a longer
/// `--leave-timeout` needs no other `TimeoutStopSec` in the unit.
pub(super) fn leaves(leave_timeout: Duration) {
    let most = (leave_timeout + LEAVING_BESIDE).as_micros();
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status("leaving: hands over its data"),
        NotifyState::Custom(&format!("EXTEND_TIMEOUT_USEC={most}")),
    ]);
}

/// Waits until the node serves. False: it never will, and the process is about to end.
async fn serves(node: &Node) -> bool {
    loop {
        match node.wait_ready(WAITS).await {
            Ok(()) => return true,
            Err(Error::NotReady(why)) => tell(&[NotifyState::Status(&format!("waits: {why}"))]),
            Err(_) => return false,
        }
    }
}

/// Whether an event may change what [`role`] says.
fn changes_roles(event: &ClusterEvent) -> bool {
    let ClusterEvent::Event(logged) = event else {
        // Events were missed: any of them may have been one of these.
        return true;
    };
    matches!(
        logged.event,
        Event::Joined { .. }
            | Event::Left { .. }
            | Event::Expelled { .. }
            | Event::Draining { .. }
            | Event::Drained { .. }
            | Event::Filled { .. }
            | Event::Coordinator { .. }
            | Event::NoCoordinator { .. }
    )
}

/// The role of the node, as `systemctl status` shows it.
async fn role(node: &Node) -> String {
    let Ok(status) = node.status().await else {
        return "stopped".into();
    };
    let name = node.name();
    let members = crate::counted(status.members.len(), ("member", "members"));
    let me = status.members.iter().find(|member| member.name == name);
    let state = match me {
        Some(me) if me.state != "live" => format!(", {}", me.state),
        _ => String::new(),
    };
    let role = match (me, status.coordinator) {
        (_, Some(coordinator)) if coordinator == name => "the coordinator".to_owned(),
        (Some(me), Some(coordinator)) => format!("a {} member beside {coordinator}", me.role),
        (Some(me), None) => format!("a {} member, no coordinator is known", me.role),
        (None, _) => "no member of the installed table".to_owned(),
    };
    format!("{name} is {role}{state}; {members}")
}

/// That systemd hears nothing ends no node: a node that is started by hand has no systemd.
fn tell(states: &[NotifyState]) {
    if let Err(e) = sd_notify::notify(states) {
        tracing::debug!("systemd was not notified: {e}");
    }
}
