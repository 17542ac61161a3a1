//! Queues of jobs over copies, failovers and older levels.

use super::*;
use crate::command::queue::{
    JobId, QueuedJob, Retried, Taken, counts, done, push, read_counts, read_pushed, read_retried,
    read_taken, retry, take,
};

const LEASE_MS: u64 = 60_000;

impl World {
    fn pushed(&mut self, n: u64, key: &str, job: &[u8]) -> JobId {
        let outcome = self.ask(n, key, push(std::iter::once(job), 0));
        let mut ids = read_pushed(&outcome).expect("it is pushed");
        ids.next().expect("an id")
    }

    fn take_one(&mut self, n: u64, key: &str, attempts_max: u32) -> Taken {
        let outcome = self.ask(n, key, take(LEASE_MS, attempts_max));
        read_taken(outcome).expect("an answer")
    }

    fn job(&mut self, n: u64, key: &str) -> QueuedJob {
        match self.take_one(n, key, 9) {
            Taken::Job(job) => job,
            other => panic!("{other:?}"),
        }
    }

    fn is_done(&mut self, n: u64, key: &str, job: &QueuedJob) -> bool {
        self.ask(n, key, done(job.id, job.token)) == Outcome::Int(1)
    }

    fn given_back(&mut self, n: u64, key: &str, job: &QueuedJob) -> Retried {
        let outcome = self.ask(n, key, retry(job.id, job.token, 0, 9));
        read_retried(&outcome).expect("an answer")
    }
}

#[test]
fn jobs_and_their_owners_survive_the_primary_and_tokens_grow() {
    let mut w = World::new(90, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    let key = key_of(0);
    // Enough that they become a table.
    let ids: Vec<JobId> = (0..200)
        .map(|n| w.pushed(3, &key, format!("job {n}").as_bytes()))
        .collect();
    assert!(ids.is_sorted_by(|one, other| one < other));
    let first = w.job(3, &key);
    assert_eq!((first.id, &first.job[..]), (ids[0], &b"job 0"[..]));
    let second = w.job(2, &key);
    assert_eq!(second.id, ids[1]);
    assert_eq!(w.given_back(2, &key, &second), Retried::Waits);
    w.settle(Duration::from_secs(1));
    w.check_copies();
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_secs(1));
    assert!(!w.is_done(3, &key, &second), "it was given back");
    let mut last = second.token;
    let mut taken = Vec::new();
    while let Taken::Job(job) = w.take_one(3, &key, 9) {
        assert!(job.token > last, "{} after {last}", job.token);
        last = job.token;
        taken.push(job.id);
    }
    let mut wanted = ids.clone();
    wanted.remove(0);
    taken.sort_unstable();
    assert_eq!(taken, wanted);
    assert!(!w.is_done(3, &key, &second), "another one has it");
    assert!(
        w.is_done(2, &key, &first),
        "its owner has it over a failover"
    );
    assert!(!w.is_done(2, &key, &first), "it is gone");
    let outcome = w.ask(2, &key, counts());
    assert_eq!(read_counts(&outcome), Some([0, 199, 0]));
    w.settle(Duration::from_secs(1));
    w.check_copies();
}

#[test]
fn a_queue_that_was_deleted_gives_no_token_and_no_id_again() {
    let mut w = World::new(91, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    let key = key_of(0);
    let id = w.pushed(1, &key, b"a");
    let job = w.job(1, &key);
    assert_eq!(w.ask(1, &key, Action::Delete), Outcome::Int(1));
    assert!(!w.is_done(1, &key, &job), "it is gone");
    let again = w.pushed(1, &key, b"a");
    assert!(again > id);
    let next = w.job(1, &key);
    assert!(next.token > job.token);
    assert!(!w.is_done(1, &key, &job), "another queue");
    assert!(w.is_done(1, &key, &next));
    assert_eq!(w.ask(1, &key, Action::Exists), Outcome::Int(0));
}

#[test]
fn what_is_no_job_is_neither_taken_nor_in_the_way() {
    let mut w = World::new(92, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    let key = key_of(0);
    let add = crate::command::elements::sorted_set_calls::add([(&b"x"[..], 1.0)].into_iter());
    assert_eq!(w.ask(1, &key, add), Outcome::Int(1));
    assert_eq!(w.take_one(1, &key, 9), Taken::Nothing);
    let id = w.pushed(1, &key, b"a");
    assert_eq!(w.job(1, &key).id, id);
}

#[test]
fn jobs_whose_attempts_are_used_up_become_dead() {
    let mut w = World::new(93, 3, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    let key = key_of(0);
    let id = w.pushed(1, &key, b"a");
    let job = w.job(1, &key);
    assert_eq!(w.given_back(1, &key, &job), Retried::Waits);
    assert_eq!(w.take_one(1, &key, 1), Taken::Again);
    assert_eq!(w.take_one(1, &key, 1), Taken::Nothing);
    assert_eq!(read_counts(&w.ask(1, &key, counts())), Some([0, 0, 1]));
    let revive = crate::command::queue::revive(id);
    assert_eq!(w.ask(1, &key, revive), Outcome::Int(1));
    assert_eq!(w.job(1, &key).attempts, 1);
}
