//! Queries over UDP as fast as one client asks them.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};

use super::books::{Books, quantile};
use crate::Figure;
use crate::pod::Pod;

const QUERIES: usize = 300_000;

/// Queries under way.
const WINDOW: usize = 16;

/// Asks for names of the mesh with a window of queries under way, and divides by the agent's processor time.
pub(crate) fn answers(pod: &Pod, agent: u32) -> Result<Vec<Figure>> {
    let before = Books::read(agent)?;
    let started = Instant::now();
    let mut waits = pod.namespace.run(async || ask())?;
    let took = started.elapsed();
    let busy = Books::read(agent)?.busy - before.busy;
    waits.sort();
    let per_core = waits.len() as f64 / busy.as_secs_f64();
    Ok(vec![
        Figure {
            what: "DNS answers over UDP, per core of the agent",
            measured: format!(
                "{:.0} a second ({:.0} by the clock)",
                per_core,
                waits.len() as f64 / took.as_secs_f64()
            ),
            budget: "≥ 100,000 a second",
        },
        Figure {
            what: "an answer's way, 16 queries at a time",
            measured: format!(
                "median {:.2} ms, p99 {:.2} ms",
                quantile(&waits, 0.5).as_secs_f64() * 1e3,
                quantile(&waits, 0.99).as_secs_f64() * 1e3
            ),
            budget: "p99 ≤ 1 ms",
        },
    ])
}

fn ask() -> Result<Vec<Duration>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect("127.0.0.1:15053")?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let packets: Vec<Vec<u8>> = (0..1000).map(packet).collect::<Result<_>>()?;
    let mut sent_at = vec![None; 1 << 16];
    let mut waits = Vec::with_capacity(QUERIES);
    let mut next = 0;
    let mut send = |sent_at: &mut Vec<Option<Instant>>| -> Result<()> {
        let mut packet = packets[next % packets.len()].clone();
        let id = u16::try_from(next % (1 << 16))?;
        packet[..2].copy_from_slice(&id.to_be_bytes());
        sent_at[usize::from(id)] = Some(Instant::now());
        socket.send(&packet)?;
        next += 1;
        Ok(())
    };
    for _ in 0..WINDOW {
        send(&mut sent_at)?;
    }
    let mut buffer = [0; 512];
    while waits.len() < QUERIES {
        let length = socket.recv(&mut buffer).context("no answer")?;
        ensure!(length > 12 && buffer[7] > 0, "an answer without addresses");
        let id = usize::from(u16::from_be_bytes([buffer[0], buffer[1]]));
        waits.push(sent_at[id].take().context("nobody asked")?.elapsed());
        send(&mut sent_at)?;
    }
    Ok(waits)
}

fn packet(number: usize) -> Result<Vec<u8>> {
    let mut message = Message::new(0, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    let name = format!("service-{number}.namespace-{}.mesh.", number % 20);
    message.add_query(Query::query(Name::from_ascii(name)?, RecordType::A));
    Ok(message.to_vec()?)
}
