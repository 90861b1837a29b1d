//! The last lines of all processes, in the order in which they came.

use std::collections::{BTreeMap, VecDeque};

use crate::process::new_lines;
use crate::snapshot::LogLine;
use crate::state::State;

/// Lines that are kept.
const LINES: usize = 60;

/// Most bytes of one log that are read at once; of a program that writes faster, the rest is passed over.
const MOST: u64 = 256 << 10;

/// The last lines.
#[derive(Debug, Default)]
pub(crate) struct LogTail {
    positions: BTreeMap<String, u64>,
    lines: VecDeque<LogLine>,
}

impl LogTail {
    /// Adds what processes have written since the last time; of proxies, what they warn of.
    pub(crate) fn advance<'a>(&mut self, state: &State, processes: impl Iterator<Item = &'a String>) {
        // Every message about a file of the mesh would begin with the whole path, and there is little room.
        let root = state.root().display().to_string();
        for process in processes {
            let path = state.log(process);
            let length = path.metadata().map_or(0, |metadata| metadata.len());
            let position = self.positions.entry(process.clone()).or_default();
            if length == *position {
                continue;
            }
            *position = (*position).max(length.saturating_sub(MOST));
            // A log that cannot be read now can be the next time.
            let text = new_lines(&path, position).unwrap_or_default();
            let is_shown = |line: &&str| !process.ends_with("/proxy") || is_warning(line);
            let lines = text.lines().filter(is_shown);
            self.lines.extend(
                lines.map(|line| LogLine { process: process.clone(), text: line.replace(&root, ".canopus") }),
            );
            self.lines.drain(..self.lines.len().saturating_sub(LINES));
        }
    }

    /// The lines, the newest last.
    pub(crate) fn lines(&self) -> Vec<LogLine> {
        self.lines.iter().cloned().collect()
    }
}

/// Whether a line of an agent or an Envoy says that something is wrong.
fn is_warning(line: &str) -> bool {
    ["\twarn\t", "\terror\t", "\tcritical\t"].iter().any(|level| line.contains(level))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_are_in_the_order_in_which_they_were_written() {
        let mesh = tempfile::tempdir().unwrap();
        let state = State::locate(mesh.path(), None).unwrap();
        state.create().unwrap();
        let processes = ["web", "cart", "web/proxy"].map(str::to_owned);
        let mut tail = LogTail::default();
        let mut write = |process: &str, text: &str| {
            let file = OpenOptions::new().create(true).append(true).open(state.log(process));
            file.unwrap().write_all(text.as_bytes()).unwrap();
            tail.advance(&state, processes.iter());
            tail.lines().iter().map(|line| format!("{} {}", line.process, line.text)).collect::<Vec<_>>()
        };
        write("web", "one\n");
        write("cart", &format!("two {}/objects\nhal", state.root().display()));
        write("web/proxy", "2026-01-01T00:00:00Z\tinfo\tready\n2026-01-01T00:00:00Z\twarn\tthree\n");
        write("web", "four\n");
        let lines = write("cart", "f\n");
        assert_eq!(
            lines,
            [
                "web one",
                "cart two .canopus/objects",
                "web/proxy 2026-01-01T00:00:00Z\twarn\tthree",
                "web four",
                "cart half"
            ]
        );
        let many: String = (0..500).map(|number| format!("{number}\n")).collect();
        let lines = write("web", &many);
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (LINES, "web 499"));
    }
}
