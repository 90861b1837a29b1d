use nix::sys::signal::{Signal, raise};
use parking_lot::Mutex;

use super::*;

const GRACE: Duration = Duration::from_secs(10);

/// Names of parts in the order in which they stopped.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<&'static str>>>);

impl Journal {
    /// Runs a part that takes this long to stop.
    fn part(&self, shutdown: &Shutdown, phase: Phase, name: &'static str, takes: Duration) {
        let part = shutdown.register(phase, name);
        let journal = self.clone();
        tokio::spawn(async move {
            part.stopping().await;
            tokio::select! {
                () = tokio::time::sleep(takes) => journal.0.lock().push(name),
                () = part.forced() => journal.0.lock().push("forced"),
            }
        });
    }

    fn names(&self) -> Vec<&'static str> {
        self.0.lock().clone()
    }
}

fn outcome(reason: &str, unfinished: &[&str]) -> Outcome {
    Outcome {
        reason: reason.to_owned(),
        unfinished: unfinished.iter().map(|name| (*name).to_owned()).collect(),
        failed: false,
    }
}

#[tokio::test(start_paused = true)]
async fn stops_phase_by_phase() {
    let shutdown = Shutdown::new();
    let journal = Journal::default();
    let seconds = Duration::from_secs;
    journal.part(&shutdown, Phase::Last, "telemetry", seconds(0));
    journal.part(&shutdown, Phase::Serving, "http", seconds(1));
    journal.part(&shutdown, Phase::Serving, "grpc", seconds(3));
    journal.part(&shutdown, Phase::Intake, "watches", seconds(2));
    shutdown.stop("test");
    assert_eq!(shutdown.run(GRACE).await, outcome("test", &[]));
    assert_eq!(journal.names(), ["watches", "http", "grpc", "telemetry"]);
}

#[tokio::test(start_paused = true)]
async fn waits_until_asked() {
    let shutdown = Shutdown::new();
    let running = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { shutdown.run(GRACE).await }
    });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!running.is_finished());
    assert!(!shutdown.is_stopping());
    shutdown.stop("test");
    assert_eq!(running.await.unwrap(), outcome("test", &[]));
}

#[tokio::test(start_paused = true)]
async fn forces_parts_when_grace_is_over() {
    let shutdown = Shutdown::new();
    let journal = Journal::default();
    journal.part(&shutdown, Phase::Serving, "grpc", Duration::from_secs(60));
    let stuck = shutdown.register(Phase::Background, "stuck");
    shutdown.stop("test");
    let start = Instant::now();
    assert_eq!(shutdown.run(GRACE).await, outcome("test", &["stuck"]));
    assert_eq!(start.elapsed(), GRACE + LAST_CALL);
    assert_eq!(journal.names(), ["forced"]);
    drop(stuck);
}

#[tokio::test(start_paused = true)]
async fn forces_parts_when_asked_to_stop_at_once() {
    let shutdown = Shutdown::new();
    let journal = Journal::default();
    journal.part(&shutdown, Phase::Serving, "grpc", Duration::from_secs(60));
    shutdown.stop("first");
    shutdown.stop_now("second");
    let start = Instant::now();
    assert_eq!(shutdown.run(GRACE).await, outcome("first", &[]));
    assert!(start.elapsed() < GRACE);
    assert_eq!(journal.names(), ["forced"]);
}

#[tokio::test(start_paused = true)]
async fn keeps_the_first_reason() {
    let shutdown = Shutdown::new();
    let journal = Journal::default();
    journal.part(&shutdown, Phase::Serving, "grpc", Duration::from_secs(1));
    shutdown.stop("first");
    shutdown.stop("second");
    assert_eq!(shutdown.run(GRACE).await, outcome("first", &[]));
    assert_eq!(journal.names(), ["grpc"]);
}

#[tokio::test]
async fn stops_at_a_signal_and_at_once_at_the_second() {
    let shutdown = Shutdown::new();
    shutdown.stop_on_signals().unwrap();
    let part = shutdown.register(Phase::Serving, "grpc");
    let serving = tokio::spawn(async move { part.forced().await });
    raise(Signal::SIGTERM).unwrap();
    shutdown.requested().await;
    raise(Signal::SIGINT).unwrap();
    assert_eq!(shutdown.run(Duration::from_secs(3600)).await, outcome("received SIGTERM", &[]));
    serving.await.unwrap();
}
