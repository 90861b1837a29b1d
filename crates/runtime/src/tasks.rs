//! Named tasks whose panics are never silent: each kind of task says what its panic means for the process.

pub mod fail_point;

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::shutdown::Shutdown;

/// Pause before a first restart; it doubles with each panic that follows soon.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause before a restart.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A task that ran this long starts over with the first pause.
const GOOD_RUN: Duration = Duration::from_secs(60);

/// The tasks of this process; clones share them.
#[derive(Clone)]
pub struct Tasks {
    shutdown: Shutdown,
    running: Arc<Mutex<List>>,
}

#[derive(Default)]
struct List {
    next: u64,
    tasks: BTreeMap<u64, TaskInfo>,
}

/// A task that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// Name of the task.
    pub name: String,
    /// How often it was begun again after a panic.
    pub restarts: u32,
}

impl Tasks {
    /// Starts without tasks; a panic that must end the process asks this shutdown.
    pub fn new(shutdown: Shutdown) -> Self {
        Tasks { shutdown, running: Arc::default() }
    }

    /// Runs a task the process cannot do without: if it panics, the process stops.
    pub fn spawn(&self, name: impl Into<String>, work: impl Future<Output = ()> + Send + 'static) {
        let entry = self.enter(name.into());
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move {
            let name = &entry.name;
            if let Err(panic) = attempt(name, work).await {
                count(name);
                tracing::error!("task {name} panicked, stopping the process: {panic}");
                shutdown.fail(format!("task {name} panicked"));
            }
        });
    }

    /// Runs a task that may fail and be begun again: after a panic, following a pause, until the process stops.
    pub fn supervise<Work>(&self, name: impl Into<String>, mut work: impl FnMut() -> Work + Send + 'static)
    where
        Work: Future<Output = ()> + Send + 'static,
    {
        let entry = self.enter(name.into());
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move {
            let mut pause = FIRST_PAUSE;
            loop {
                let start = Instant::now();
                let Err(panic) = attempt(&entry.name, work()).await else { return };
                if start.elapsed() >= GOOD_RUN {
                    pause = FIRST_PAUSE;
                }
                count(&entry.name);
                tracing::error!("task {} panicked, beginning again in {pause:?}: {panic}", entry.name);
                tokio::select! {
                    () = sleep(pause) => {}
                    () = shutdown.requested() => return,
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
                entry.restarted();
            }
        });
    }

    /// As [`supervise`](Self::supervise), for work on a state that outlives its panics: it goes on with what they left.
    pub fn supervise_with<State, Work>(
        &self,
        name: impl Into<String>,
        state: State,
        work: impl Fn(OwnedMutexGuard<State>) -> Work + Clone + Send + Sync + 'static,
    ) where
        State: Send + 'static,
        Work: Future<Output = ()> + Send + 'static,
    {
        let state = Arc::new(tokio::sync::Mutex::new(state));
        self.supervise(name, move || {
            let (state, work) = (Arc::clone(&state), work.clone());
            async move { work(state.lock_owned().await).await }
        });
    }

    /// Tasks that run, in the order in which they were begun.
    pub fn list(&self) -> Vec<TaskInfo> {
        self.running.lock().tasks.values().cloned().collect()
    }

    fn enter(&self, name: String) -> Entry {
        let mut running = self.running.lock();
        let id = running.next;
        running.next += 1;
        running.tasks.insert(id, TaskInfo { name: name.clone(), restarts: 0 });
        Entry { running: Arc::clone(&self.running), id, name }
    }
}

/// Runs a part of a task apart from it: begun again after a panic, following a pause, until it ends by itself or the handle is
/// dropped. `lost` is told the panic first, so that whoever relies on the part knows that it stands still.
pub fn keep_running<Work, Telling>(
    name: impl Into<String>,
    mut work: impl FnMut() -> Work + Send + 'static,
    mut lost: impl FnMut(String) -> Telling + Send + 'static,
) -> Running
where
    Work: Future<Output = ()> + Send + 'static,
    Telling: Future<Output = ()> + Send,
{
    let name = name.into();
    let task = tokio::spawn(async move {
        let mut pause = FIRST_PAUSE;
        loop {
            let start = Instant::now();
            let Err(panic) = attempt(&name, work()).await else { return };
            if start.elapsed() >= GOOD_RUN {
                pause = FIRST_PAUSE;
            }
            count(&name);
            tracing::error!("{name} panicked, beginning again in {pause:?}: {panic}");
            lost(format!("{name} panicked: {panic}")).await;
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    });
    Running { task }
}

/// A part that is kept running; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "dropping this ends the part"]
pub struct Running {
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs work that ends by itself and that nobody waits for. A panic is logged and counted under `name`.
pub fn detach(name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move {
        // A panic has been told by then, and there is nobody else to tell.
        let _ = contain(name, work).await;
    });
}

/// Runs work apart from its caller, so that a panic of it is an error and not the caller's end. The work ends when the future is
/// dropped. A panic is counted under `name`, which should be one of few.
pub async fn contain<T: Send + 'static>(
    name: &'static str,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, String> {
    let mut set = JoinSet::new();
    set.spawn(work);
    match set.join_next().await {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(match error.try_into_panic() {
            Ok(panic) => caught(name, panic.as_ref()),
            Err(error) => format!("{name}: {error}"),
        }),
        None => Err(format!("{name}: it was never begun")),
    }
}

/// How often each task and part of a task has panicked since the process began.
pub fn panics() -> BTreeMap<String, u64> {
    PANICS.lock().clone()
}

/// Counts a panic that was caught elsewhere, and what it said.
pub fn caught(name: &str, panic: &(dyn Any + Send)) -> String {
    count(name);
    let text = format!("{name} panicked: {}", message(panic));
    tracing::error!("{text}");
    text
}

static PANICS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

fn count(name: &str) {
    *PANICS.lock().entry(name.to_owned()).or_default() += 1;
}

/// A task's place in the list, left when the task ends.
struct Entry {
    running: Arc<Mutex<List>>,
    id: u64,
    name: String,
}

impl Entry {
    fn restarted(&self) {
        if let Some(info) = self.running.lock().tasks.get_mut(&self.id) {
            info.restarts += 1;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.running.lock().tasks.remove(&self.id);
    }
}

/// Runs work to its end or its panic. In a set, so that dropping this future ends the work as well.
async fn attempt(name: &str, work: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
    let mut set = JoinSet::new();
    set.spawn(fail_point::at(name, work));
    match set.join_next().await {
        Some(Err(error)) => error.try_into_panic().map_or(Ok(()), |panic| Err(message(panic.as_ref()))),
        _ => Ok(()),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn info(name: &str, restarts: u32) -> TaskInfo {
        TaskInfo { name: name.to_owned(), restarts }
    }

    #[tokio::test(start_paused = true)]
    async fn lists_tasks_while_they_run() {
        let tasks = Tasks::new(Shutdown::new());
        let (end, ended) = oneshot::channel::<()>();
        tasks.spawn("short", async move {
            let _ = ended.await;
        });
        tasks.spawn("long", std::future::pending());
        assert_eq!(tasks.list(), [info("short", 0), info("long", 0)]);
        end.send(()).unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(tasks.list(), [info("long", 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn stops_the_process_when_a_needed_task_panics() {
        let shutdown = Shutdown::new();
        Tasks::new(shutdown.clone()).spawn("xds", async { panic!("broken") });
        let outcome = shutdown.run(GRACE).await;
        assert_eq!((&*outcome.reason, outcome.failed), ("task xds panicked", true));
        assert_eq!(panics()["xds"], 1);
    }

    #[tokio::test(start_paused = true)]
    async fn part_that_panics_says_so_and_is_begun_again() {
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let begun = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&begun);
        let part = keep_running(
            "watch of pods",
            move || {
                let attempt = counter.fetch_add(1, Ordering::Relaxed);
                async move {
                    assert!(attempt >= 2, "attempt {attempt}");
                    std::future::pending::<()>().await;
                }
            },
            move |reason| {
                let _ = tell.send(reason);
                std::future::ready(())
            },
        );
        sleep(Duration::from_secs(1)).await;
        assert_eq!(begun.load(Ordering::Relaxed), 3);
        assert_eq!(told.recv().await.as_deref(), Some("watch of pods panicked: attempt 0"));
        assert_eq!(panics()["watch of pods"], 2);
        drop(part);
        assert_eq!(told.recv().await.as_deref(), Some("watch of pods panicked: attempt 1"));
        assert_eq!(told.recv().await, None, "it ends with its handle");
    }

    #[tokio::test(start_paused = true)]
    async fn begins_again_with_growing_pauses_when_a_supervised_task_panics() {
        let shutdown = Shutdown::new();
        let tasks = Tasks::new(shutdown.clone());
        let begun = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&begun);
        tasks.supervise("refresh", move || {
            let attempt = counter.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(attempt >= 3, "attempt {attempt}");
                std::future::pending::<()>().await;
            }
        });
        // Pauses of 100, 200 and 400 ms.
        sleep(Duration::from_millis(650)).await;
        assert_eq!(begun.load(Ordering::Relaxed), 3);
        sleep(Duration::from_millis(100)).await;
        assert_eq!(tasks.list(), [info("refresh", 3)]);
        assert!(!shutdown.is_stopping());
    }

    #[tokio::test(start_paused = true)]
    async fn state_of_a_supervised_task_outlives_its_panics() {
        let shutdown = Shutdown::new();
        let tasks = Tasks::new(shutdown.clone());
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        tasks.supervise_with("count", 0, move |mut count| {
            let tell = tell.clone();
            async move {
                *count += 1;
                tell.send(*count).unwrap();
                assert_eq!(*count, 3, "not yet");
            }
        });
        sleep(Duration::from_secs(1)).await;
        assert_eq!([told.recv().await, told.recv().await, told.recv().await], [Some(1), Some(2), Some(3)]);
        assert!(!shutdown.is_stopping());
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_begin_again_when_the_process_stops() {
        let shutdown = Shutdown::new();
        let tasks = Tasks::new(shutdown.clone());
        tasks.supervise("refresh", || async { panic!("broken") });
        sleep(Duration::from_millis(1)).await;
        shutdown.stop("test");
        sleep(Duration::from_millis(1)).await;
        assert_eq!(tasks.list(), []);
    }

    #[tokio::test]
    async fn contained_panic_is_an_error_and_is_counted() {
        assert_eq!(contain("sum", async { 7 }).await, Ok(7));
        let failed = contain("sum", async { panic!("no numbers") }).await;
        assert_eq!(failed, Err::<(), _>("sum panicked: no numbers".to_owned()));
        assert_eq!(panics()["sum"], 1);
    }

    #[test]
    fn reads_both_kinds_of_panic_messages() {
        assert_eq!(message(&"text"), "text");
        assert_eq!(message(&"text".to_owned()), "text");
        assert_eq!(message(&7), "no message");
    }
}
