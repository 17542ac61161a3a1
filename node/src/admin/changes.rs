//! The changes that an operator, or a program, makes to a cluster.

use super::balance::BalanceOptions;
use super::error::{AdminError, InvalidField, Refusal};
use super::keyspace::KeyspaceOptions;
use super::{Admin, RECOVER_MAX, plan, refusal};
use crate::control::ControlClosed;
use crate::error::within_runtime;
use crate::report::rebalance::RebalancePlan;
use doyen_gossip::agreement::{AdminReply, AdminRequest, BalanceChange, Half, VotersGone};
use doyen_placement::{Balancing, BranchId, Keyspace, MapId, MoveRate, Paused, Schedulers, Window};
use std::time::Instant;

impl Admin {
    /// Creates a keyspace, unless it exists with the same settings, and waits until this node
    /// serves it.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), Box<dyn std::error::Error>> {
    /// let options = doyen::KeyspaceOptions::new().partitions(64).backups(2);
    /// node.admin().create_keyspace("orders", &options).await?;
    /// let open = node.map::<u64, String>("open").keyspace("orders").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`Refusal::Invalid`]: the name or an option is invalid in any cluster.
    /// - [`Refusal::Conflict`]: another keyspace has this name, or there are too many.
    /// - [`AdminError::NotInForce`]: the keyspace was created, and has no partitions yet. It gets
    ///   them once the cluster has enough members (`--members-min`).
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn create_keyspace(
        &self,
        name: &str,
        options: &KeyspaceOptions,
    ) -> Result<(), AdminError> {
        let until = self.changes.deadline();
        let wanted = options.create(name)?;
        self.changes
            .ask(until, AdminRequest::CreateKeyspace(wanted))
            .await?;
        self.changes
            .await_table(until, |table| {
                // As long as no keyspace has partitions, the cluster waits for members.
                let assigned = |k: &Keyspace| !k.partitions.is_empty();
                table
                    .keyspace_named(name)
                    .is_some_and(|k| assigned(k) || !table.keyspaces.iter().any(assigned))
            })
            .await?;
        if self.changes.serves(name) {
            return Ok(());
        }
        Err(AdminError::NotInForce {
            why: format!(
                "keyspace {name:?} gets its partitions once the cluster has enough members \
                 (--members-min): start more nodes"
            ),
        })
    }

    /// Changes a keyspace while it is in use. Options that are not given stay as they are.
    ///
    /// When this returns, the change is agreed on. The cluster then makes or drops copies, which
    /// [`Admin::status`] and [`Admin::moves`] show.
    ///
    /// # Errors
    /// - [`Refusal::NotFound`]: there is no such keyspace.
    /// - [`Refusal::Invalid`]: no option is given, or one that cannot be altered.
    /// - [`Refusal::Conflict`]: the result would contradict other settings of this keyspace.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn alter_keyspace(
        &self,
        name: &str,
        options: &KeyspaceOptions,
    ) -> Result<(), AdminError> {
        self.changes.change(options.alter(name)?).await
    }

    /// Drops a keyspace with its maps and all their data, and waits until this node has dropped it.
    ///
    /// # Errors
    /// - [`Refusal::NotFound`]: there is no such keyspace.
    /// - [`Refusal::Conflict`]: it is `default`, which stays.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn drop_keyspace(&self, name: &str) -> Result<(), AdminError> {
        let until = self.changes.deadline();
        self.changes
            .ask(until, AdminRequest::DropKeyspace { name: name.into() })
            .await?;
        self.changes
            .await_table(until, |table| table.keyspace_named(name).is_none())
            .await
    }

    /// Splits a range of a keyspace in two. The second range begins with this key.
    ///
    /// When this returns, the split is agreed on. It happens some milliseconds later, and writes to
    /// the range wait for it. If a range begins with this key already, nothing happens.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::AdminError> {
    /// let admin = node.admin();
    /// admin.split_at("names", b"m").await?; // before names from m on are imported
    /// // When they are deleted again:
    /// admin.merge_at("names", b"m").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`Refusal::NotFound`]: there is no such keyspace.
    /// - [`Refusal::Invalid`]: the key is empty.
    /// - [`Refusal::Conflict`]: the keyspace has no ranges, or too many.
    /// - [`Refusal::NotYet`]: the range moves, lacks copies, or is being split or merged.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn split_at(&self, keyspace: &str, key: &[u8]) -> Result<(), AdminError> {
        self.changes
            .change(AdminRequest::SplitAt {
                keyspace: keyspace.into(),
                map: MapId(0),
                key: begins_with(key)?,
            })
            .await
    }

    /// Merges the range that begins with this key with the one before it. The same members must
    /// hold both, with the same primary.
    ///
    /// When this returns, the merge is agreed on. It happens some milliseconds later.
    ///
    /// # Errors
    /// As [`Admin::split_at`]. [`Refusal::NotFound`] also means that no range begins with this key.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn merge_at(&self, keyspace: &str, key: &[u8]) -> Result<(), AdminError> {
        self.changes
            .change(AdminRequest::MergeAt {
                keyspace: keyspace.into(),
                map: MapId(0),
                key: begins_with(key)?,
            })
            .await
    }

    /// Begins to empty a member. What it leads goes to other members at once, and its copies once
    /// they are made elsewhere.
    ///
    /// [`Admin::moves`] shows how far this is (`draining`). Once the member holds nothing, it may
    /// be stopped without any loss.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), Box<dyn std::error::Error>> {
    /// let admin = node.admin();
    /// admin.drain("orders-2").await?;
    /// let holds = |moves: &doyen::MovesReport| {
    ///     moves.draining.iter().any(|drain| drain.member == "orders-2" && drain.holds > 0)
    /// };
    /// while holds(&admin.moves().await?) {
    ///     tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    /// }
    /// println!("orders-2 may be stopped"); // or used again: admin.fill("orders-2")
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`Refusal::NotFound`]: there is no such member.
    /// - [`Refusal::Conflict`]: it holds no data, does not answer, or is leaving.
    /// - [`Refusal::Unsafe`]: no other member may hold data.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`]. A
    /// drain that has begun goes on.
    pub async fn drain(&self, member: &str) -> Result<(), AdminError> {
        self.changes
            .change(AdminRequest::Drain {
                name: member.into(),
            })
            .await
    }

    /// Ends a drain: the member may hold data again.
    ///
    /// # Errors
    /// - [`Refusal::NotFound`]: there is no such member.
    /// - [`Refusal::Conflict`]: it is not being drained.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn fill(&self, member: &str) -> Result<(), AdminError> {
        self.changes
            .change(AdminRequest::Fill {
                name: member.into(),
            })
            .await
    }

    /// Goes on without a silent member whose machine will not return. Data that this member alone
    /// held is lost.
    ///
    /// # Errors
    /// - [`Refusal::NotFound`]: there is no such member.
    /// - [`Refusal::Unsafe`]: the member answers. [`Admin::drain`] empties it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn remove_lost(&self, member: &str) -> Result<(), AdminError> {
        self.changes
            .change(AdminRequest::GiveUp {
                name: member.into(),
            })
            .await
    }

    /// Forgets a member that went, and that is missed no more: no alert and no status mentions it.
    /// A member that is there again, or left in order, need not be forgotten.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::AdminError> {
    /// // Its machine was given back, and will not be replaced.
    /// node.admin().forget("orders-3").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: no member of this name went.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn forget(&self, member: &str) -> Result<(), AdminError> {
        self.changes
            .change(AdminRequest::Forget {
                name: member.into(),
            })
            .await
    }

    /// Forgets every member that went, and returns their names.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::AdminError> {
    /// // Three machines were given back, and the cluster stays as it is.
    /// println!("forgotten: {}", node.admin().forget_all().await?.join(", "));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// No refusals; see [`AdminError`]. With an error, some of them may have been forgotten.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn forget_all(&self) -> Result<Vec<String>, AdminError> {
        let until = self.changes.deadline();
        let table = self.changes.newest(until).await?;
        let mut forgotten = Vec::new();
        for gone in &table.annex.gone {
            let name = gone.name.clone();
            match self.changes.ask(until, AdminRequest::Forget { name }).await {
                Ok(_) => forgotten.push(gone.name.clone()),
                // It is there again, or was forgotten meanwhile.
                Err(AdminError::Refused(Refusal::NotFound { .. })) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(forgotten)
    }

    /// Goes on without a majority of the voters. The caller asserts that these members are dead and
    /// will not come back. If one of them lives all the same, two clusters may go on.
    ///
    /// Ask a member that has a vote. Name every member that is gone, and count the voters among
    /// them. First make sure that those machines are off: most often it is the member that sees no
    /// majority that is cut off, and the others go on without it. Takes 11 s at most.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), Box<dyn std::error::Error>> {
    /// // Two of three machines burned down. This node had a vote.
    /// let dead = ["orders-1".to_owned(), "orders-2".to_owned()];
    /// node.admin().recover(&dead, "2/3".parse()?).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`Refusal::Invalid`]: no member is named.
    /// - [`Refusal::NotFound`]: a name is not that of a member.
    /// - [`Refusal::Unsafe`]: a named member answers, or is this node.
    /// - [`Refusal::Conflict`]: a coordinator works, so there is nothing to recover; or this node
    ///   cannot lead; or the count is wrong.
    /// - [`AdminError::Unknown`]: the members that are left did not agree in time.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn recover(&self, dead: &[String], gone: VotersGone) -> Result<(), AdminError> {
        self.ask_to_recover(dead, self.changes.control.recover(dead.to_vec(), gone))
            .await
    }

    /// Whether [`Admin::recover`] with the same words would begin, or why it would be refused.
    /// Nothing changes. It may still be refused later: members die and come back meanwhile.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), Box<dyn std::error::Error>> {
    /// // Ask the operator only what can be done.
    /// let dead = ["orders-1".to_owned(), "orders-2".to_owned()];
    /// node.admin().may_recover(&dead, "2/3".parse()?).await?;
    /// println!("These machines burned down: is that true?");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Admin::recover`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed.
    pub async fn may_recover(&self, dead: &[String], gone: VotersGone) -> Result<(), AdminError> {
        self.ask_to_recover(dead, self.changes.control.may_recover(dead.to_vec(), gone))
            .await
    }

    async fn ask_to_recover(
        &self,
        dead: &[String],
        asked: impl Future<Output = Result<AdminReply, ControlClosed>>,
    ) -> Result<(), AdminError> {
        if dead.is_empty() {
            let why = "name at least one member that is dead and will not come back";
            return Err(InvalidField::new("assert_dead", why).into());
        }
        within_runtime().map_err(|_| AdminError::NoRuntime)?;
        let began = Instant::now();
        let asked = tokio::time::timeout(RECOVER_MAX, asked).await;
        let why = match asked {
            Ok(Ok(AdminReply::Done(_))) => return Ok(()),
            Ok(Ok(AdminReply::Refused(why) | AdminReply::Outdated(why))) => why,
            Ok(Err(_)) => return Err(self.changes.stopped()),
            Err(_) => {
                return Err(AdminError::Unknown {
                    why: self.changes.waits_for().await,
                });
            }
        };
        let cluster = self
            .changes
            .control
            .status()
            .await
            .map_err(|_| self.changes.stopped())?;
        Err(refusal::of_recover(&cluster, dead, why, began.elapsed()))
    }

    /// Keeps this half of a split whose halves were both recovered: it serves again. Stop the nodes
    /// of the other half, and start them again: they join this one, and what they acknowledged
    /// since is lost.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), doyen::AdminError> {
    /// node.admin().keep_half().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`Refusal::Unsafe`]: the other half went on by elections alone and was heard within half a
    ///   minute, so it serves.
    /// - [`Refusal::Conflict`]: this half is not stopped by a split.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn keep_half(&self) -> Result<(), AdminError> {
        within_runtime().map_err(|_| AdminError::NoRuntime)?;
        let cluster = self
            .changes
            .control
            .status()
            .await
            .map_err(|_| self.changes.stopped())?;
        match &cluster.status.split {
            Some(split) if split.half == (Half::Stopped { both: false }) && split.is_heard => {
                let why = format!(
                    "{split}: the nodes of the other half serve. If this half shall stay, stop \
                     them first, and ask again after 30 s"
                );
                Err(Refusal::Unsafe { why }.into())
            }
            Some(split) if split.is_stopped() => {
                let table = cluster.installed.as_deref();
                let branch = table.and_then(|table| table.annex.branches.last());
                let branch = branch.map_or(BranchId(0), |branch| branch.id);
                self.changes.change(AdminRequest::KeepHalf(branch)).await
            }
            _ => {
                let why = "this node is not stopped by a split, so there is nothing to keep".into();
                Err(Refusal::Conflict { why }.into())
            }
        }
    }

    /// Moves what this plan says.
    ///
    /// ```no_run
    /// # async fn example(admin: doyen::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// let plan = admin.rebalance_plan().await?;
    /// for step in &plan.operators {
    ///     println!("{step}");
    /// }
    /// if !plan.goals.is_empty() {
    ///     admin.rebalance(&plan).await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Refusal::Conflict`]: the table has changed since the plan was made, or the plan names
    /// something that does not exist, or it is empty. Nothing moves then: make another plan.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn rebalance(&self, plan: &RebalancePlan) -> Result<(), AdminError> {
        let until = self.changes.deadline();
        self.changes.await_coordinator(until).await?;
        let request = plan::request(plan, &*self.changes.table_or_not_member()?)?;
        self.changes.ask(until, request).await.map(|_| ())
    }

    /// Says for which reasons copies and primaries move by themselves.
    ///
    /// `Schedulers::ALL` is the default. With `Schedulers::MANUAL`, the cluster repairs losses and
    /// broken rules, and leaves balance to [`Admin::rebalance`].
    ///
    /// # Errors
    /// No refusals; see [`AdminError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn rebalance_automatically(&self, schedulers: Schedulers) -> Result<(), AdminError> {
        self.changes
            .change(AdminRequest::Schedule(schedulers))
            .await
    }

    /// Moves nothing more for balance until [`Admin::resume_balance`]. Copies under way are
    /// finished. Repairs and drains go on.
    ///
    /// # Errors
    /// No refusals; see [`AdminError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn pause_balance(&self) -> Result<(), AdminError> {
        self.change_balance(BalanceChange::Pause(Paused::Operator))
            .await
    }

    /// Lets balancing go on, also for partitions whose move was cancelled.
    ///
    /// # Errors
    /// No refusals; see [`AdminError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn resume_balance(&self) -> Result<(), AdminError> {
        self.change_balance(BalanceChange::Resume).await
    }

    /// Sets how fast copies are made: `MoveRate::Adaptive`, or the most bytes a second that each
    /// member sends and takes.
    ///
    /// ```no_run
    /// # async fn example(node: doyen::Node) -> Result<(), Box<dyn std::error::Error>> {
    /// use doyen::{MoveRate, Schedulers};
    ///
    /// // Balance at night, with 20 MiB a second at most, and not for load alone.
    /// let admin = node.admin();
    /// admin.set_move_rate(MoveRate::Bytes(20 << 20)).await?;
    /// admin.set_balance_window(Some("22:00-06:00".parse()?)).await?;
    /// let but_hot = Schedulers::ALL.iter().filter(|each| *each != doyen::Scheduler::Hot);
    /// admin.rebalance_automatically(but_hot.collect()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Refusal::Invalid`]: less than 64 KiB a second.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn set_move_rate(&self, rate: MoveRate) -> Result<(), AdminError> {
        if let MoveRate::Bytes(bytes) = rate
            && bytes < Balancing::RATE_LEAST
        {
            return Err(super::balance::too_slow(&format!("{bytes} bytes")).into());
        }
        self.change_balance(BalanceChange::Rate(rate)).await
    }

    /// Sets the time of day (UTC) for balancing; `None`: at any time. Losses are repaired at any
    /// time.
    ///
    /// # Errors
    /// No refusals; see [`AdminError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn set_balance_window(&self, window: Option<Window>) -> Result<(), AdminError> {
        self.change_balance(BalanceChange::Window(window)).await
    }

    /// Changes several settings of balancing, given as text, one after the other.
    ///
    /// # Errors
    /// [`Refusal::Invalid`]: no setting is given, or one of them is not understood; nothing is
    /// changed then. With any other error, the first settings may have been changed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn set_balance(&self, options: &BalanceOptions) -> Result<(), AdminError> {
        let until = self.changes.deadline();
        for change in options.changes()? {
            self.changes
                .ask(until, AdminRequest::Balance(change))
                .await?;
        }
        Ok(())
    }

    async fn change_balance(&self, change: BalanceChange) -> Result<(), AdminError> {
        self.changes.change(AdminRequest::Balance(change)).await
    }

    /// Gives up a move, named `KEYSPACE/PARTITION` as in [`Admin::moves`]. The partition stays
    /// where it is until [`Admin::resume_balance`], or until members come or go.
    ///
    /// ```no_run
    /// # async fn example(admin: doyen::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// for report in admin.moves().await?.moves.iter().filter(|report| report.to == "orders-9") {
    ///     admin.cancel_move(&report.id).await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`Refusal::NotFound`]: there is no such partition.
    /// - [`Refusal::Conflict`]: it does not move.
    /// - [`Refusal::Unsafe`]: its move repairs a loss or drains a member.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn cancel_move(&self, id: &str) -> Result<(), AdminError> {
        let until = self.changes.deadline();
        self.changes.await_coordinator(until).await?;
        let find = || self.changes.installed()?.partition_named(id);
        let mut found = find();
        if found.is_none() {
            // Another member may know a newer table.
            let _ = tokio::time::timeout_at(until.into(), self.changes.control.catch_up()).await;
            found = find();
        }
        let at = found.ok_or_else(|| Refusal::NotFound {
            why: format!("there is no partition {id:?}: `doyen moves` names those that move"),
        })?;
        self.changes
            .ask(until, AdminRequest::Cancel(Some(at)))
            .await
            .map(|_| ())
    }

    /// Gives up every move that is for balance, and pauses balancing until
    /// [`Admin::resume_balance`].
    ///
    /// ```no_run
    /// # async fn example(admin: doyen::Admin) -> Result<(), doyen::AdminError> {
    /// admin.cancel_moves().await?; // the machines are needed for something else
    /// // Later:
    /// admin.resume_balance().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// No refusals; see [`AdminError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not, as after [`AdminError::Unknown`].
    pub async fn cancel_moves(&self) -> Result<(), AdminError> {
        self.changes.change(AdminRequest::Cancel(None)).await
    }
}

/// A key with which a range may begin.
fn begins_with(key: &[u8]) -> Result<Box<[u8]>, InvalidField> {
    if key.is_empty() {
        let why = "a range begins with a key that is not empty: name the first key of that range";
        return Err(InvalidField::new("at", why));
    }
    Ok(key.into())
}
