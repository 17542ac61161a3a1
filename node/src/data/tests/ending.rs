//! Wakers that panic, and data threads that end.

use super::*;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Panics when it is woken.
#[derive(Default)]
struct Hostile(AtomicBool);

impl Wake for Hostile {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
        panic!("this test's waker panics");
    }
}

/// The waker of one caller ended the data thread, and with it every other caller's node.
#[tokio::test]
async fn a_waker_that_panics_is_its_callers_business() {
    let node = doorless(1);
    let hostile = Arc::new(Hostile::default());
    let waker = Waker::from(hostile.clone());
    let mut call = Box::pin(node.handle.execute(operation(Action::Strlen)));
    assert!(
        call.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let mut stats = Box::pin(node.handle.stats());
    assert!(
        stats
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    while !hostile.0.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        node.handle.execute(operation(Action::Strlen)).await,
        Outcome::Int(0)
    );
    assert_eq!(
        call.await,
        Outcome::Int(0),
        "polled again, it has its outcome"
    );
    stats.await;
    assert!(!node.handle.has_ended());
    node.stop().await;
}

/// Calls were told to try again, for ever.
#[tokio::test]
async fn calls_after_the_end_say_that_it_is_over() {
    let node = doorless(1);
    let handle = node.handle.clone();
    assert!(!handle.has_ended());
    node.stop().await;
    assert!(handle.has_ended());
    for action in [Action::Get, Action::Delete] {
        assert_eq!(
            handle.execute(operation(action)).await,
            Outcome::Failed(Failure::Stopped)
        );
    }
    let count = PartitionOperation {
        keyspace: KeyspaceId(0),
        partition: PartitionId(0),
        map: MapId(0),
        action: PartitionAction::Count,
    };
    assert_eq!(
        handle.execute_partition(count).await,
        Outcome::Failed(Failure::Stopped)
    );
}

/// The control thread was not told, and callers waited for ever.
#[tokio::test]
async fn a_thread_that_ends_by_itself_says_so_to_callers_and_to_the_control_thread() {
    let poll = mio::Poll::new().unwrap();
    let thread_waker = ThreadWaker::new(mio::Waker::new(poll.registry(), reactor::WAKE).unwrap());
    let inbox = Arc::new(Inbox::new(thread_waker, 10));
    let (upcalls, mut told) = mpsc::channel(1);
    let mut call = Box::pin(Asked::new(inbox.clone(), Work::Key(operation(Action::Get))));
    assert!(
        call.as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    let attended = Attended::new(inbox.clone(), Vec::new(), upcalls);
    let thread = std::thread::spawn(move || {
        let _attended = attended;
        panic!("this test's thread panics");
    });
    assert!(matches!(told.recv().await, Some(Upcall::Ended(why)) if why.contains("panicked")));
    assert!(thread.join().is_err() && inbox.has_ended());
    assert_eq!(
        call.as_mut().poll(&mut Context::from_waker(Waker::noop())),
        Poll::Ready(Outcome::Failed(Failure::Stopped))
    );
}
