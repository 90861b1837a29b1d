//! The floor under every latency: the same bytes to as many connections, by a program that does nothing else.
//!
//! The program is this one, started again: the child opens a connection for each proxy and one more. A byte on that one starts
//! a round, in which the child writes the payload to all connections and waits for an answer as short as an acknowledgement. What
//! the kernel and the scheduler take on this machine at this moment is in it; HTTP/2, gRPC and any thought are not.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::figure::Figure;
use crate::usage;

/// The length of an answer: about that of an acknowledgement with its frames.
const ANSWER: usize = 80;

/// How long one round may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes that all rounds together may send.
const AT_MOST: usize = 2 << 30;

/// What is sent in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Connections that are written to.
    pub(crate) connections: usize,
    /// Bytes to each.
    pub(crate) bytes: usize,
}

impl Load {
    /// Divides so many bytes among so many connections.
    pub(crate) fn divided(bytes: u64, connections: usize) -> Self {
        let connections = connections.max(1);
        Self { connections, bytes: (bytes as usize / connections).max(1) }
    }

    /// How many rounds are worth their time, of so many wanted.
    fn rounds(self, wanted: usize) -> usize {
        (AT_MOST / (self.connections * self.bytes).max(1)).clamp(3, wanted.max(3))
    }
}

/// What a load takes at the least.
#[derive(Clone, Debug)]
pub(crate) struct Floor {
    /// How long each round took, from its start until the last connection had answered.
    rounds: Vec<Duration>,
    /// Processor time of the child, each round.
    cpu: Duration,
}

impl Floor {
    /// Measures it.
    pub(crate) async fn measure(load: Load, wanted: usize) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let child = Writer::start(listener.local_addr()?, load)?;
        let (mut control, _) = timeout(PATIENCE, listener.accept()).await??;
        let (answered, mut answers) = mpsc::unbounded_channel();
        let left = Arc::new(AtomicUsize::new(0));
        let mut readers = JoinSet::new();
        for _ in 0..load.connections {
            let (stream, _) =
                timeout(PATIENCE, listener.accept()).await.context("connections of the floor")??;
            stream.set_nodelay(true)?;
            readers.spawn(answer(stream, load.bytes, Arc::clone(&left), answered.clone()));
        }
        let mut rounds = Vec::new();
        // The first round warms up.
        let count = load.rounds(wanted);
        let mut before = Duration::ZERO;
        for round in 0..=count {
            left.store(load.connections, Ordering::SeqCst);
            let started = Instant::now();
            control.write_all(&[1]).await?;
            let ended = timeout(PATIENCE, answers.recv()).await.context("a round of the floor")?;
            let ended: Instant = ended.context("the floor's connections ended")?;
            match round {
                0 => before = usage::cpu(child.0.id())?,
                _ => rounds.push(ended.saturating_duration_since(started)),
            }
        }
        let cpu = usage::cpu(child.0.id())?.saturating_sub(before) / count as u32;
        Ok(Self { rounds, cpu })
    }

    /// The floor, and how many times it one delay is.
    pub(crate) fn figures_of_one(&self, what: &str, delay: Duration) -> Vec<Figure> {
        let floor =
            Figure::times(&format!("{what}: bare sockets, the floor"), &self.rounds).into_iter().next();
        let ratio = floor.as_ref().map(|floor| {
            Figure::count(format!("{what}, times the floor"), delay.as_secs_f64() / floor.value)
        });
        floor.into_iter().chain(ratio).collect()
    }

    /// The floor, and how many times it these delays are.
    pub(crate) fn figures(&self, what: &str, delays: &[Duration]) -> Vec<Figure> {
        let floors = Figure::times(&format!("{what}: bare sockets, the floor"), &self.rounds);
        let measured = Figure::times(what, delays);
        let ratios: Vec<_> = measured
            .iter()
            .zip(&floors)
            .map(|(measured, floor)| {
                Figure::count(format!("{}, times the floor", measured.name), measured.value / floor.value)
            })
            .collect();
        let cpu = Figure::cpu(format!("{what}: bare sockets, processor time"), self.cpu);
        floors.into_iter().chain(ratios).chain([cpu]).collect()
    }
}

/// Reads payloads and answers them.
async fn answer(
    mut stream: TcpStream,
    length: usize,
    left: Arc<AtomicUsize>,
    answered: mpsc::UnboundedSender<Instant>,
) -> Result<()> {
    let mut buffer = vec![0; length.min(64 << 10)];
    loop {
        let mut missing = length;
        while missing > 0 {
            let room = missing.min(buffer.len());
            match stream.read(&mut buffer[..room]).await? {
                0 => bail!("the writer hung up"),
                read => missing -= read,
            }
        }
        stream.write_all(&[0; ANSWER]).await?;
        if left.fetch_sub(1, Ordering::SeqCst) == 1 {
            answered.send(Instant::now())?;
        }
    }
}

/// The process that writes.
struct Writer(Child);

impl Writer {
    fn start(address: SocketAddr, load: Load) -> Result<Self> {
        let numbers = [address.port().to_string(), load.connections.to_string(), load.bytes.to_string()];
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--floor-writer").args(numbers).stdin(Stdio::null());
        Ok(Self(command.spawn().context("starting the floor's writer")?))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The child: writes to all connections whenever it is told to, until nobody is there to tell it.
pub(crate) async fn write(port: u16, load: Load) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut control = TcpStream::connect(address).await?;
    let (start, _) = watch::channel(());
    let payload: Arc<[u8]> = vec![7; load.bytes].into();
    let mut writers = JoinSet::new();
    for _ in 0..load.connections {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        writers.spawn(write_to(stream, Arc::clone(&payload), start.subscribe()));
    }
    while control.read(&mut [0]).await? > 0 {
        start.send(())?;
    }
    Ok(())
}

async fn write_to(mut stream: TcpStream, payload: Arc<[u8]>, mut start: watch::Receiver<()>) -> Result<()> {
    let mut answer = [0; ANSWER];
    loop {
        start.changed().await?;
        stream.write_all(&payload).await?;
        stream.read_exact(&mut answer).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_loads_have_fewer_rounds() {
        assert_eq!(Load { connections: 1000, bytes: 450 }.rounds(50), 50);
        assert_eq!(Load { connections: 1000, bytes: 500_000 }.rounds(50), 4);
        assert_eq!(Load { connections: 1000, bytes: 2_000_000 }.rounds(50), 3);
    }

    #[test]
    fn delays_are_shown_as_multiples_of_the_floor() {
        let floor = Floor { rounds: vec![Duration::from_millis(10)], cpu: Duration::from_millis(5) };
        let figures = floor.figures("to last ACK", &[Duration::from_millis(25)]);
        let ratio = figures.iter().find(|figure| figure.name == "to last ACK, p99, times the floor").unwrap();
        assert!((ratio.value - 2.5).abs() < 1e-9, "{ratio:?}");
    }

    #[tokio::test]
    async fn writer_writes_as_often_as_it_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let writer = tokio::spawn(write(port, Load { connections: 2, bytes: 100 }));
        let (mut control, _) = listener.accept().await.unwrap();
        let (mut one, _) = listener.accept().await.unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        for _ in 0..2 {
            control.write_all(&[1]).await.unwrap();
            for stream in [&mut one, &mut other] {
                stream.read_exact(&mut [0; 100]).await.unwrap();
                stream.write_all(&[0; ANSWER]).await.unwrap();
            }
        }
        drop(control);
        writer.await.unwrap().unwrap();
    }
}
