//! Real processes behind relays that cut, lose, delay and shorten: each member finds it in its
//! examination, and says what to do.

use doyen::http::api;
use doyen::http::client::Client as HttpClient;
use doyen::report::examination::{Examination, HealthFinding, HealthVerdict};
use doyen::testkit::{Cluster, Faults, PATIENCE, Plane};
use doyen_tests::resp::Client;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");

struct Examined {
    runtime: Runtime,
    cluster: Cluster,
}

impl Examined {
    fn start(nodes: usize) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let builder = Cluster::builder().binary(BINARY).option("partitions", 16);
        let cluster = runtime.block_on(builder.start(nodes)).expect("the nodes");
        Self { runtime, cluster }
    }

    fn examination(&self, node: usize) -> Examination {
        let address = self.cluster.http(node).expect("it runs").to_string();
        let token = self.cluster.operator_token().expect("a token");
        let client = HttpClient::new(address, token);
        let asked = self.runtime.block_on(client.ask(&api::EXAMINATION));
        asked.expect("an examination")
    }

    /// What a check finds at a node.
    fn found(&self, node: usize, check: &str) -> HealthFinding {
        let all = self.examination(node).findings;
        let of = all.iter().find(|finding| finding.check == check);
        of.unwrap_or_else(|| panic!("{check}: {all:?}")).clone()
    }

    /// Puts load on the cluster by a node until a check is a warning there with this text, which
    /// has the name of a peer in it.
    fn await_warning(&self, node: usize, check: &str, [before, after]: [&str; 2], peer: usize) {
        let text = format!("{before}{}{after}", self.cluster.name(peer));
        let resp = self.cluster.resp(node).expect("it runs");
        let mut client = Client::connect(resp, PATIENCE).expect("it answers");
        let value = vec![b'x'; 60_000];
        let until = Instant::now() + PATIENCE;
        for round in 0.. {
            for key in 0..40 {
                let key = format!("key {key}");
                let command = [b"SET", key.as_bytes(), value.as_slice()];
                client.command(&command).expect("a reply");
            }
            let finding = self.found(node, check);
            if finding.verdict == HealthVerdict::Warning && finding.text.contains(text.as_str()) {
                assert!(finding.remedy.is_some(), "{finding:?}");
                return;
            }
            assert!(Instant::now() < until, "round {round}: {finding:?}");
        }
    }
}

#[test]
fn both_ends_say_which_direction_between_two_data_ports_is_cut() {
    let examined = Examined::start(3);
    assert_eq!(examined.found(0, "relay").verdict, HealthVerdict::Fine);
    examined.cluster.cut_plane(0, 1, Plane::Data);
    examined.await_warning(1, "relay", ["nothing arrives from ", ""], 0);
    examined.await_warning(0, "relay", ["nothing arrives at ", ""], 1);
    assert_eq!(examined.found(2, "relay").verdict, HealthVerdict::Fine);
}

#[test]
fn losses_small_datagrams_and_long_round_trips_are_found_by_those_who_have_them() {
    let mut examined = Examined::start(2);
    let faults = |examined: &Examined, faults: Faults| {
        examined.cluster.heal();
        examined.cluster.degrade(faults);
    };
    for check in ["loss", "round-trips", "mtu"] {
        let fine = examined.found(0, check);
        assert_eq!(fine.verdict, HealthVerdict::Fine, "{fine:?}");
    }
    let lossy = Faults {
        loss: 0.1,
        ..Faults::NONE
    };
    faults(&examined, lossy);
    examined.await_warning(0, "loss", ["packets to ", " (data)"], 1);
    let short = Faults {
        datagram_bytes_max: Some(1_300),
        ..Faults::NONE
    };
    faults(&examined, short);
    examined.await_warning(0, "mtu", ["to ", ""], 1);
    let far = Faults {
        delay: Duration::from_millis(40),
        ..Faults::NONE
    };
    faults(&examined, far);
    examined.await_warning(0, "round-trips", ["to ", ""], 1);
    examined.cluster.heal();
    examined.cluster.check().expect("no node has ended");
}
