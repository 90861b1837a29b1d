//! A sign of life for whatever takes longer than a second, on terminals only.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// What takes less is not worth a line.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows what is going on until it is dropped, from the second second on.
pub(crate) struct Slow {
    /// Dropped to end the thread.
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether something is shown already: what belongs to something longer is not shown by itself.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// Something begins that may take long.
pub(crate) fn slow(what: &str) -> Slow {
    if !io::stderr().is_terminal() || IS_SHOWN.swap(true, Ordering::Relaxed) {
        return Slow { over: None, thread: None };
    }
    let (over, ends) = channel();
    let what = what.to_owned();
    let thread = thread::spawn(move || show(&what, &ends));
    Slow { over: Some(over), thread: Some(thread) }
}

fn show(what: &str, ends: &Receiver<()>) {
    if ends.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    // Nothing is ever sent: the other end is dropped.
    let _ = ends.recv();
    bar.finish_and_clear();
}

impl Drop for Slow {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            // The line is gone before anything else is printed.
            let _ = thread.join();
            IS_SHOWN.store(false, Ordering::Relaxed);
        }
    }
}
