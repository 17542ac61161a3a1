//! What the data thread tells the control thread.

use doyen_gossip::agreement::InSyncRequest;
use doyen_placement::{Epoch, PartitionRef, TableName};

/// From the data thread, over a bounded channel.
#[derive(Debug)]
pub enum Upcall {
    /// These partitions are open, in tenures that began at these epochs.
    Opened(Vec<(PartitionRef, Epoch)>),
    /// Changes of in-sync sets.
    InSync(Vec<InSyncRequest>),
    /// The first write of this cluster of one waits; answered once the cluster is marked used.
    Used(tokio::sync::oneshot::Sender<()>),
    /// The data thread makes progress.
    Alive,
    /// A peer knows a newer committed table.
    Newer(TableName),
}
