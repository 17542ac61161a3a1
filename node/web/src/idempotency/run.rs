//! One request with a key: claims it, runs it, and stores its answer.

use super::answer::{asks_to_repeat, split};
use super::record::{RequestDigest, RequestKey, State, StoredRequest, digest};
use super::{IdempotencySettings, fingerprinted};
use crate::problem::ProblemResponse;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use doyen::{Error, Happened};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a claim is tried whose outcome is unknown.
const CLAIMS_MAX: usize = 3;
/// The pause after a failed renewal or write.
const PAUSE: Duration = Duration::from_millis(100);
/// How far the clock of a partition may be ahead after a failover, besides the drift of clocks, as
/// for locks of the cluster (`doyen_engine::sync`).
const CLOCK_AHEAD: Duration = Duration::from_millis(1_300);
/// When a repeat of a request that runs may come again.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct GuardedRequest {
    settings: Arc<IdempotencySettings>,
    key: RequestKey,
    fingerprint: RequestDigest,
    attempt: u64,
}

/// What came of a write over a claim.
#[derive(Debug, PartialEq)]
enum ClaimOutcome {
    Yes,
    /// Another attempt has the entry.
    Lost,
}

impl GuardedRequest {
    pub(super) fn new(
        settings: Arc<IdempotencySettings>,
        key: RequestKey,
        parts: &Parts,
        body: &[u8],
    ) -> Self {
        Self {
            settings,
            key,
            fingerprint: digest(fingerprinted(parts, body)),
            attempt: rand::random(),
        }
    }

    /// Runs the handler, unless the request was executed or is being executed.
    pub(super) async fn run<E>(
        self,
        handler: impl Future<Output = Result<Response, E>> + Send,
    ) -> Result<Response, E> {
        let mut renewed = match self.claim().await {
            Ok(claimed) => claimed,
            Err(answer) => return Ok(answer),
        };
        let limit = self.settings.response_max;
        let running = async {
            Ok(match handler.await? {
                answer if asks_to_repeat(answer.status()) => (answer, None),
                answer => {
                    let (answer, stored) = split(answer, limit).await;
                    (answer, Some(stored))
                }
            })
        };
        let ran = tokio::select! {
            // If both are due, the claim is lost: another node may have begun.
            biased;
            () = self.renew_until_lost(&mut renewed) => return Ok(lost().response()),
            ran = AssertUnwindSafe(running).catch_unwind() => ran,
        };
        match ran {
            Ok(Ok((answer, Some(stored)))) => {
                self.store(stored, renewed).await;
                Ok(answer)
            }
            Ok(Ok((answer, None))) => {
                self.release().await;
                Ok(answer)
            }
            Ok(Err(why)) => {
                self.release().await;
                Err(why)
            }
            Err(panic) => {
                self.release().await;
                std::panic::resume_unwind(panic)
            }
        }
    }

    /// Claims the request for this attempt. Returns when that was asked for, or the answer to a
    /// request that must not run.
    async fn claim(&self) -> Result<Instant, Response> {
        let asked = Instant::now();
        let claim = self.stored(self.running());
        for _ in 0..CLAIMS_MAX {
            let put = self.settings.requests.put(&self.key, &claim);
            match put.ttl(self.settings.lease).if_absent().await {
                Ok(None) => return Ok(asked),
                // An earlier try has arrived.
                Ok(Some(there)) if there.is_attempt(self.attempt) => return Ok(asked),
                Ok(Some(there)) => return Err(self.answer_to_repeat(there)),
                Err(why) if why.happened() == Happened::Unknown => {}
                Err(why) => {
                    tracing::warn!("a request with an idempotency key cannot run: {why}");
                    return Err(ProblemResponse::of_error(&why).response());
                }
            }
        }
        Err(ProblemResponse::of_error(&Error::Unavailable).response())
    }

    fn answer_to_repeat(&self, there: StoredRequest) -> Response {
        if there.fingerprint != self.fingerprint {
            let detail = "Another request had this Idempotency-Key: use a new key.";
            return ProblemResponse::new(StatusCode::UNPROCESSABLE_ENTITY, detail).response();
        }
        let conflict = |detail| ProblemResponse::new(StatusCode::CONFLICT, detail);
        let replayed = match there.state {
            State::Running { .. } => {
                let detail = "A request with this Idempotency-Key is running: repeat it later.";
                return conflict(detail).retry_after(RETRY).response();
            }
            State::Done(stored) => stored.and_then(|answer| answer.replay()),
        };
        replayed.unwrap_or_else(|| {
            let detail = "This request was executed, and its answer was not kept: look at what it \
                          has done.";
            conflict(detail).response()
        })
    }

    /// Renews the claim, and returns when it is lost, or when another node might soon get it.
    /// `renewed` is when the last renewal that succeeded was asked for.
    async fn renew_until_lost(&self, renewed: &mut Instant) {
        let lease = self.settings.lease;
        loop {
            tokio::time::sleep_until(*renewed + lease / 3).await;
            let renewing = async {
                loop {
                    let asked = Instant::now();
                    match self.write(self.running(), lease).await {
                        Ok(ClaimOutcome::Yes) => return Some(asked),
                        Ok(ClaimOutcome::Lost) => return None,
                        Err(why) => {
                            tracing::debug!("the claim of a request is not renewed: {why}");
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                }
            };
            match tokio::time::timeout_at(self.end(*renewed), renewing).await {
                Ok(Some(asked)) => *renewed = asked,
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Until when a claim that was renewed at that moment is certainly held.
    fn end(&self, renewed: Instant) -> Instant {
        let lease = self.settings.lease;
        renewed + (lease - lease / 50).saturating_sub(CLOCK_AHEAD)
    }

    /// Stores that the request was executed, as long as the claim lasts.
    async fn store(&self, answer: Option<super::answer::StoredAnswer>, renewed: Instant) {
        let storing = async {
            let mut done = State::Done(answer);
            loop {
                match self.write(done.clone(), self.settings.keep_for).await {
                    Ok(ClaimOutcome::Yes) => return true,
                    Ok(ClaimOutcome::Lost) => return false,
                    // The grid has a limit of its own, or no memory for this. That the request was
                    // executed is what matters.
                    Err(Error::TooLarge | Error::OutOfMemory) if done != State::Done(None) => {
                        done = State::Done(None);
                    }
                    Err(why) => {
                        tracing::debug!("an answer is not stored: {why}");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        let stored = tokio::time::timeout_at(self.end(renewed), storing).await;
        if stored != Ok(true) {
            tracing::error!(
                "a request was executed, and the grid could not note that: a repeat may run again"
            );
        }
    }

    /// Lets a repeat run. If that fails, it may run when the lease has ended.
    async fn release(&self) {
        let ours = |there: &StoredRequest| there.is_attempt(self.attempt);
        if let Err(why) = self.settings.requests.remove_if(&self.key, ours).await {
            tracing::debug!("the claim of a request ends by itself: {why}");
        }
    }

    /// Writes over the claim, unless another attempt has the entry. The entry may also be gone: a
    /// partition may have lost its last copy, and nothing else stops a repeat then.
    async fn write(&self, state: State, ttl: Duration) -> Result<ClaimOutcome, Error> {
        let requests = &self.settings.requests;
        let next = self.stored(state);
        loop {
            let seen = requests.get_versioned(&self.key).await?;
            match seen.value() {
                // A write whose answer was lost has arrived.
                Some(there) if *there == next && !there.is_attempt(self.attempt) => {
                    return Ok(ClaimOutcome::Yes);
                }
                Some(there) if !there.is_attempt(self.attempt) => return Ok(ClaimOutcome::Lost),
                Some(_) | None => {}
            }
            let put = requests.put(&self.key, &next).ttl(ttl);
            if put.if_unchanged(&seen).await? {
                return Ok(ClaimOutcome::Yes);
            }
        }
    }

    fn running(&self) -> State {
        State::Running {
            attempt: self.attempt,
        }
    }

    fn stored(&self, state: State) -> StoredRequest {
        StoredRequest {
            fingerprint: self.fingerprint,
            state,
        }
    }
}

/// The claim could not be renewed in time, so the handler was stopped.
fn lost() -> ProblemResponse {
    let detail = "The cluster could not be reached while this request ran, so it was stopped half \
                  way. Repeat it.";
    ProblemResponse::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(RETRY)
}
