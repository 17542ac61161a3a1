//! Tries what a node does when it starts: opens its ports, resolves its seeds, and asks them who
//! they are. `doyen doctor` does so where no node runs.

use super::builder::identity_of;
use super::sockets::NodeSockets;
use crate::address::AddressFamilies;
use crate::config::Config;
use crate::control::seeds::{Choice, resolve};
use crate::data::ITSELF_BYTES;
use crate::doctor::{Preflight, TriedSeed};
use crate::error::Error;
use crate::machine::MachineReading;
use crate::net::endpoint::{DATA_SOCKET_BYTES, DialFailure, Purpose};
use crate::net::hello::Hello;
use crate::net::identity::secret::SecretRole;
use crate::net::peers::greet_once;
use crate::report::examination::Examination;
use doyen_gossip::SigningSeed;
use doyen_placement::MemberId;
use futures_util::future::join_all;

/// Tries to start a node with this configuration, and ends before it would take part. Nothing stays
/// open.
///
/// ```no_run
/// # async fn example(config: doyen::config::Config) -> Result<(), doyen::Error> {
/// let tried = doyen::preflight(&config).await?;
/// for finding in doyen::doctor::judge_preflight(&tried) {
///     println!("{}: {}", finding.check, finding.text);
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// The files with secrets or certificates cannot be used.
///
/// # Cancel safety
/// If the future is dropped, nothing stays open.
pub async fn preflight(config: &Config) -> Result<Preflight, Error> {
    let opened = NodeSockets::open(&config.ports);
    let addresses = opened
        .as_ref()
        .ok()
        .and_then(|sockets| sockets.addresses(&config.ports, &config.seeds).ok());
    let ports = opened.map(drop).map_err(|e| e.to_string());
    let listen = addresses.map_or(config.ports.listen, |addresses| addresses.control);
    let name = config.name.clone().unwrap_or_else(|| listen.to_string());
    let identity = identity_of(&config.trust, SecretRole::Member, &name)?;
    identity.set_key(&SigningSeed::new(rand::random()));

    let choice = Choice {
        reach: AddressFamilies::of(config.ports.listen),
        own: Some(listen.ip()).filter(|ip| !ip.is_unspecified()),
    };
    let resolved = resolve(&config.seeds, choice).await;
    let hello = Hello::new(Purpose::Control, MemberId::of_member(rand::random()), &name);
    let hello = hello.up_to(config.level_max).at(listen).passing();
    let others = resolved.addresses.iter().filter(|seed| **seed != listen);
    let (identity, hello) = (&identity, &hello);
    let asked = others.map(|&address| async move {
        let failure = greet_once(address, identity, hello).await.err();
        TriedSeed {
            address,
            lasts: failure.as_ref().is_some_and(DialFailure::is_lasting),
            failure: failure.map(|failure| failure.to_string()),
        }
    });
    let seeds = join_all(asked).await;
    let machine = MachineReading::new(DATA_SOCKET_BYTES);
    let machine = Examination {
        machine: MachineReading {
            // `doyen run` raises its own limit.
            files_max: machine.files_hard,
            ..machine
        },
        threads: config.ports.threads.into(),
        connections_max: config.resp.connections_max as u64,
        memory_max: config.memory.bytes_max() as u64,
        memory_itself: ITSELF_BYTES,
        seeds: config.seeds.len() as u64,
        seeds_unresolved: resolved.unresolved,
        ..Examination::default()
    };
    Ok(Preflight {
        machine,
        ports,
        seeds,
    })
}
