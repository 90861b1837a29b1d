//! What Envoy writes to its error output: passed on, and the end of it kept for when it crashes.

use std::collections::VecDeque;
use std::sync::Arc;

use canopus_runtime::tasks::detach;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::sync::oneshot;

const KEPT_LINES: usize = 20;
const KEPT_BYTES: usize = 512;

/// The last lines.
#[derive(Clone, Debug, Default)]
pub(super) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    /// Passes on what is read, until the end, which the result waits for.
    pub(super) fn follow(&self, from: impl AsyncRead + Send + Unpin + 'static) -> oneshot::Receiver<()> {
        let lines = self.clone();
        let (end, ended) = oneshot::channel();
        detach("Envoy's output", async move {
            let mut reader = BufReader::new(from);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
                {
                    use std::io::Write as _;
                    // An error output that is closed must not stop Envoy from writing.
                    let _ = std::io::stderr().write_all(&line);
                }
                lines.push(&line);
                line.clear();
            }
            drop(end);
        });
        ended
    }

    fn push(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(&line[..line.len().min(KEPT_BYTES)]).trim_end().to_owned();
        let mut lines = self.0.lock();
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(text);
    }

    pub(super) fn text(&self) -> String {
        let lines = self.0.lock();
        if lines.is_empty() {
            "(none)".to_owned()
        } else {
            lines.iter().cloned().collect::<Vec<_>>().join("\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept() {
        let lines = LastLines::default();
        assert_eq!(lines.text(), "(none)");
        for number in 0..100 {
            lines.push(format!("line {number} {}\n", "x".repeat(1000)).as_bytes());
        }
        let text = lines.text();
        assert!(text.starts_with("line 80 ") && text.len() <= KEPT_LINES * (KEPT_BYTES + 1));
    }
}
