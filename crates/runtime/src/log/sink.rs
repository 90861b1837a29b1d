//! Where lines go. A thread of its own writes them, so that a reader that stops reading never stops the process.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::LogError;
use super::format::{Format, Record};
use super::level::Level;

/// Lines that may wait for the writer; others are lost and counted.
const QUEUE: usize = 4096;

/// Bytes gathered into one write.
const BATCH: usize = 64 * 1024;

/// How often a full queue is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// How long a line waits for room in the queue: enough for a burst, too short to hold up the process.
const PATIENCE: Duration = Duration::from_millis(50);

enum Job {
    Line(String),
    Flush(SyncSender<()>),
}

/// Handle to the writer; clones share the queue.
#[derive(Clone)]
pub(super) struct Sink {
    jobs: SyncSender<Job>,
    /// Lines lost since the last batch was written; while there are any, no line waits.
    lost: Arc<AtomicU64>,
}

impl Sink {
    /// Starts the writer; it ends with the last handle.
    pub(super) fn start(targets: Vec<Target>, format: Format) -> Result<Sink, LogError> {
        let (jobs, queue) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer { targets, format, lost: Arc::clone(&lost) };
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.run(&queue))
            .map_err(LogError::Thread)?;
        Ok(Sink { jobs, lost })
    }

    /// Queues a line; if there is no room for it soon, it is lost and counted.
    pub(super) fn write(&self, line: String) {
        let stalled = self.lost.load(Ordering::Relaxed) > 0;
        let patience = if stalled { Duration::ZERO } else { PATIENCE };
        if !self.queue(Job::Line(line), Instant::now() + patience) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything queued so far is written, at most this long; tells whether it was.
    pub(super) fn flush(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let (done, written) = sync_channel(1);
        if !self.queue(Job::Flush(done), deadline) {
            return false;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        !matches!(written.recv_timeout(left), Err(RecvTimeoutError::Timeout))
    }

    fn queue(&self, mut job: Job, deadline: Instant) -> bool {
        while let Err(TrySendError::Full(refused)) = self.jobs.try_send(job) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(RETRY);
            job = refused;
        }
        true
    }
}

/// One place lines are written to.
pub(super) struct Target {
    name: String,
    output: Box<dyn Write + Send>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Working,
    /// The last write failed and the failure was reported.
    Failing,
    /// The reader is gone for good.
    Closed,
}

impl Target {
    /// Opens `stdout`, `stderr` or a file, which is created if need be and appended to.
    pub(super) fn open(name: &str) -> Result<Target, LogError> {
        match name {
            "stdout" => Ok(Target::new(name, io::stdout())),
            "stderr" => Ok(Target::new(name, io::stderr())),
            path => Ok(Target::new(name, open_file(path)?)),
        }
    }

    pub(super) fn new(name: &str, output: impl Write + Send + 'static) -> Target {
        Target { name: name.to_owned(), output: Box::new(output), state: State::Working }
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.state == State::Closed {
            return;
        }
        match self.output.write_all(bytes).and_then(|()| self.output.flush()) {
            Ok(()) => self.state = State::Working,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.state = State::Closed,
            Err(error) => self.fail(&error),
        }
    }

    /// Says once per streak of failures, on the only stream left, that lines are being lost.
    fn fail(&mut self, error: &io::Error) {
        if self.state == State::Working {
            let _ = writeln!(io::stderr(), "cannot write the log to {}: {error}", self.name);
        }
        self.state = State::Failing;
    }
}

fn open_file(path: &str) -> Result<File, LogError> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|source| LogError::Open { target: path.to_owned(), source })
}

struct Writer {
    targets: Vec<Target>,
    format: Format,
    lost: Arc<AtomicU64>,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Job>) {
        let mut batch = String::new();
        while let Ok(first) = queue.recv() {
            let mut waiting = Vec::new();
            let mut next = Some(first);
            while let Some(job) = next {
                match job {
                    Job::Line(line) => batch.push_str(&line),
                    Job::Flush(done) => waiting.push(done),
                }
                next = if batch.len() < BATCH { queue.try_recv().ok() } else { None };
            }
            self.write(&batch);
            batch.clear();
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.write(&lost_lines(lost, self.format));
            }
            for done in waiting {
                // The caller may have given up meanwhile.
                let _ = done.try_send(());
            }
        }
    }

    fn write(&mut self, text: &str) {
        for target in &mut self.targets {
            target.write(text.as_bytes());
        }
    }
}

/// The line that stands for lines the queue had no room for.
fn lost_lines(count: u64, format: Format) -> String {
    let record = Record {
        time: Timestamp::now(),
        level: Level::Warn,
        scope: None,
        caller: None,
        message: "log lines lost: the log is read too slowly",
        fields: vec![("count", count.into())],
        stack: None,
    };
    record.render(format)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// Reports each write, and performs it only once allowed to.
    struct Gated {
        allowed: Receiver<()>,
        seen: Sender<String>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.allowed.recv().map_err(|_| ErrorKind::BrokenPipe)?;
            self.seen.send(String::from_utf8_lossy(bytes).into_owned()).map_err(|_| ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn loses_and_counts_lines_when_the_reader_stalls() {
        let (allow, allowed) = channel();
        let (seen, output) = channel();
        let sink = Sink::start(vec![Target::new("test", Gated { allowed, seen })], Format::Text).unwrap();
        // Long enough that not all of them can be gathered into the write that is held up.
        for number in 0..3 * QUEUE {
            sink.write(format!("{number:064}\n"));
        }
        assert!(!sink.flush(Duration::ZERO));

        for _ in 0..QUEUE {
            allow.send(()).unwrap();
        }
        drop(sink);
        let text: String = output.iter().collect();
        assert!(text.contains("log lines lost"), "{text}");
        let kept = text.lines().filter(|line| line.parse::<usize>().is_ok()).count();
        assert!((QUEUE..3 * QUEUE).contains(&kept), "{kept}");
    }

    #[test]
    fn stays_quiet_when_the_reader_is_gone() {
        let (allow, allowed) = channel();
        let (seen, output) = channel();
        drop((allow, output));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let file = Target::open(path.to_str().unwrap()).unwrap();
        let sink =
            Sink::start(vec![Target::new("test", Gated { allowed, seen }), file], Format::Text).unwrap();
        sink.write("one\n".to_owned());
        assert!(sink.flush(LONG));
        sink.write("two\n".to_owned());
        assert!(sink.flush(LONG));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn appends_to_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "before\n").unwrap();
        let sink = Sink::start(vec![Target::open(path.to_str().unwrap()).unwrap()], Format::Text).unwrap();
        sink.write("after\n".to_owned());
        assert!(sink.flush(LONG));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "before\nafter\n");
    }

    #[test]
    fn names_the_target_it_cannot_open() {
        let error = Target::open("/nonexistent/log").err().expect("no such directory");
        assert!(error.to_string().starts_with("cannot open log target \"/nonexistent/log\""), "{error}");
    }
}
