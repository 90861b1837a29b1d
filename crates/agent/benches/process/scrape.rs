//! Scrapes of an application with a large page of metrics.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use canopus_testkit::http;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::books::{Books, quantile};
use crate::Figure;
use crate::pod::Pod;

const PORT: u16 = 9100;

/// Where the agent finds the application's page.
pub(crate) const ANNOTATIONS: &str = r#"{"scrape": "true", "port": "9100", "path": "/metrics"}"#;

const SCRAPES: u32 = 20;
const BYTES: usize = 5_000_000;

/// Scrapes through the agent, plain and compressed.
pub(crate) fn merging(pod: &Pod, agent: u32) -> Result<Vec<Figure>> {
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, started) = std::sync::mpsc::channel();
    let namespace = pod.namespace.clone();
    let application = std::thread::spawn(move || {
        namespace.run(async move || {
            let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], PORT))).await?;
            let _ = ready.send(());
            tokio::select! { result = serve(listener) => result, _ = stopped => Ok(()) }
        })
    });
    started.recv()?;
    let mut figures = Vec::new();
    for (encoding, what, budget) in [
        ("identity", "merging a scrape of 5 MB, processor time", "≤ 20 ms"),
        ("gzip", "the same, compressed with gzip", ""),
        ("zstd", "the same, compressed with zstd", ""),
    ] {
        let before = Books::read(agent)?;
        let (mut waits, size) = pod.namespace.run(async || {
            let (mut waits, mut size) = (Vec::new(), 0);
            for _ in 0..SCRAPES {
                let address = SocketAddr::from(([127, 0, 0, 1], 15020));
                let started = Instant::now();
                let request = http::request(http::Method::GET, address, "/metrics");
                let answer = request.header("accept-encoding", encoding).send().await?;
                ensure!(answer.status == 200, "{}", answer.status);
                ensure!(encoding != "identity" || answer.body.len() > BYTES, "only {}", answer.body.len());
                waits.push(started.elapsed());
                size = answer.body.len();
            }
            Ok((waits, size))
        })?;
        waits.sort();
        let busy = (Books::read(agent)?.busy - before.busy) / SCRAPES;
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let median = quantile(&waits, 0.5);
        let measured = format!(
            "{:.1} ms ({:.1} ms by the clock) for {:.1} MB",
            milliseconds(busy),
            milliseconds(median),
            size as f64 / 1e6
        );
        figures.push(Figure { what, measured, budget });
    }
    let _ = stop.send(());
    application.join().map_err(|_| anyhow::anyhow!("the application panicked"))??;
    Ok(figures)
}

async fn serve(listener: TcpListener) -> Result<()> {
    let page = page();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        page.len()
    );
    loop {
        let (mut stream, _) = listener.accept().await?;
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await?;
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(page.as_bytes()).await?;
        stream.shutdown().await?;
    }
}

fn page() -> String {
    let mut page = String::with_capacity(BYTES + 200);
    let mut number = 0;
    while page.len() < BYTES {
        let _ = writeln!(
            page,
            "http_requests_total{{method=\"GET\",path=\"/items/{number}\",code=\"200\",pod=\"cart-{}\"}} {}",
            number % 97,
            number * 31
        );
        number += 1;
    }
    page
}
