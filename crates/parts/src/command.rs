use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// How many closing lines of a client's output are kept for the error message.
const KEPT_LINES: usize = 20;

/// A line longer than this is cut: nothing outside may make us hold more.
const LINE_LIMIT: u64 = 64 * 1024;

/// A finished client.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// The closing lines of what it wrote.
    pub(crate) tail: String,
}

impl Finished {
    /// What went wrong, where the client's own words show it to be one of the ordinary troubles.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        trouble_in(&self.tail)
    }
}

/// The ordinary troubles of a download or a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Offline,
    Checksum,
    DiskFull,
}

/// Runs a client to its end. `watch` sees each line it writes, and `None` about once a second while it is silent.
pub(crate) fn run(command: &mut Command, mut watch: impl FnMut(Option<&str>)) -> io::Result<Finished> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (sender, lines) = mpsc::channel();
    let readers = [
        child.stdout.take().map(|pipe| read_lines(pipe, sender.clone())),
        child.stderr.take().map(|pipe| read_lines(pipe, sender.clone())),
    ];
    drop(sender);

    let mut tail = VecDeque::with_capacity(KEPT_LINES);
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                watch(Some(&line));
                if tail.len() == KEPT_LINES {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => watch(None),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    for reader in readers.into_iter().flatten() {
        reader.join().map_err(|_| io::Error::other("reading a client's output panicked"))?;
    }
    Ok(Finished { status: child.wait()?, tail: Vec::from(tail).join("\n") })
}

fn read_lines(pipe: impl Read + Send + 'static, lines: Sender<String>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while matches!(pipe.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line), Ok(read) if read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if lines.send(text).is_err() {
                return;
            }
        }
    })
}

fn trouble_in(output: &str) -> Option<Trouble> {
    const SIGNS: [(Trouble, &[&str]); 3] = [
        (Trouble::DiskFull, &["no space left on device"]),
        (Trouble::Checksum, &["checksum mismatch", "security error", "do not match the hashes"]),
        (
            Trouble::Offline,
            &[
                "no such host",
                "dial tcp",
                "connection refused",
                "network is unreachable",
                "name resolution",
                "name or service not known",
                "failed to establish a new connection",
                "i/o timeout",
                "tls handshake timeout",
                "module lookup disabled",
                // pip reports an index it cannot reach as one that has no versions.
                "from versions: none",
            ],
        ),
    ];
    let output = output.to_lowercase();
    let shows = |signs: &[&str]| signs.iter().any(|sign| output.contains(sign));
    SIGNS.into_iter().find(|(_, signs)| shows(signs)).map(|(trouble, _)| trouble)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_outputs_are_watched_and_the_end_is_kept() {
        let mut seen = Vec::new();
        let finished = run(&mut shell("seq 1 30; echo late >&2; exit 3"), |line| {
            seen.extend(line.map(str::to_owned));
        })
        .unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!(seen.len(), 31);
        assert_eq!(finished.tail.lines().count(), KEPT_LINES);
    }

    #[test]
    fn endless_line_is_cut_rather_than_held() {
        let mut longest = 0;
        run(&mut shell("head -c 200000 /dev/zero | tr '\\0' x"), |line| {
            longest = longest.max(line.map_or(0, str::len));
        })
        .unwrap();
        assert_eq!(longest as u64, LINE_LIMIT);
    }

    #[test]
    fn ordinary_troubles_are_known_by_their_words() {
        let cases = [
            ("dial tcp: lookup proxy: no such host", Some(Trouble::Offline)),
            ("ERROR: Could not find a version (from versions: none)", Some(Trouble::Offline)),
            ("verifying a@v1: checksum mismatch", Some(Trouble::Checksum)),
            ("write /x: no space left on device\ndial tcp", Some(Trouble::DiskFull)),
            ("main.go:3: undefined: x", None),
        ];
        for (output, trouble) in cases {
            assert_eq!(trouble_in(output), trouble, "{output}");
        }
    }
}
