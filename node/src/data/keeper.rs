//! A thread of the node for what must go on while the program blocks its own runtime: leases of
//! locks and of loads are renewed here, and pauses end here.
//!
//! It starts when it is first needed, and has a runtime with timers alone.

use std::sync::OnceLock;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The thread, if it was needed.
#[derive(Debug, Default)]
pub(super) struct Keeper(OnceLock<Option<Running>>);

#[derive(Debug)]
struct Running {
    runtime: Handle,
    /// Dropped or set: the thread ends.
    stop: watch::Sender<bool>,
}

impl Running {
    fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, mut stopped) = watch::channel(false);
        std::thread::Builder::new()
            .name("doyen-keeper".into())
            .stack_size(512 << 10)
            .spawn(move || {
                let _ = runtime.block_on(stopped.wait_for(|stopped| *stopped));
            })?;
        Ok(Self {
            runtime: handle,
            stop,
        })
    }
}

impl Keeper {
    fn running(&self) -> Option<&Running> {
        let running = self.0.get_or_init(|| {
            let running = Running::start();
            running
                .inspect_err(|why| tracing::error!("the thread that keeps leases: {why}"))
                .ok()
        });
        running.as_ref()
    }

    /// Waits, on any runtime and without one.
    pub(super) async fn pause(&self, time: Duration) {
        if let Some(running) = self.running() {
            let pause = async move { tokio::time::sleep(time).await };
            // It fails only once the node has ended.
            let _ = running.runtime.spawn(pause).await;
        }
    }

    /// Runs a task that waits for nothing but time and operations. It ends with the node.
    ///
    /// # Panics
    /// The system refused the thread, and this was called outside of a tokio runtime.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        match self.running() {
            Some(running) => running.runtime.spawn(task),
            // Leases then end with the runtime of the program.
            None => tokio::spawn(task),
        }
    }

    pub(super) fn stop(&self) {
        if let Some(Some(running)) = self.0.get() {
            running.stop.send_replace(true);
        }
    }
}
