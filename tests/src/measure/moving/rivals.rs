//! What readers and writers of other systems notice while a fourth member joins, with the same data
//! and the same share of the same machine.

use super::Plan;
use super::speech::Speech;
use super::steady::{self, EntryPoints, Load, Steady, fill};
use crate::measure::beside::systems::{Installed, Kind};
use crate::measure::children::Cores;
use anyhow::{Result, bail};
use std::path::Path;
use std::time::Instant;

pub(super) fn run(kind: Kind, plan: &Plan) -> Result<()> {
    // As for Doyen: no process is bound to a processor.
    let cores = Cores::shared();
    let installed = Installed::find(kind, Path::new(&plan.binary), cores)?;
    let mut system = installed.start(cores)?;
    let fronts = match kind {
        Kind::Redis => EntryPoints {
            speech: Speech::Redirected,
            addresses: system.cluster.clone(),
        },
        Kind::Hazelcast => EntryPoints {
            speech: Speech::Memcached,
            addresses: system.memcached.clone(),
        },
        Kind::Doyen | Kind::Olric => {
            bail!("only redis and hazelcast can be measured beside Doyen here")
        }
    };
    // The system's own client is not needed, and would take a share of the machine.
    system.client = None;
    fill(&fronts, plan.bytes, plan.connections());
    let steady = Steady::start(
        &fronts,
        plan.bytes,
        plan.connections(),
        &Load::Operations(plan.load),
    );
    println!(
        "{} {}: {} operations a second of {}\n{}",
        kind.name(),
        installed.version,
        steady.rate(),
        steady.capacity(),
        steady::head()
    );
    std::thread::sleep(super::QUIET);
    println!("{}", steady.phase("before").row());
    let began = Instant::now();
    system.grow(&installed, cores)?;
    let took = began.elapsed().as_secs_f64();
    println!("{}", steady.phase("a fourth member joins").row());
    std::thread::sleep(super::QUIET);
    println!("{}", steady.phase("after").row());
    println!(
        "it has its share after {took:.1} s\n{} acknowledged writes lost\n",
        steady.finish()
    );
    Ok(())
}
