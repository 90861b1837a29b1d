//! Clients that abuse HTTP/2 itself. They speak in frames, as no library would say such things.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use canopus_xds::server::{Options, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Instant, timeout};
use tokio_stream::StreamExt as _;

use crate::toy::Toy;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// How long a client waits for the server to take something. The clock stands still as long as anybody has anything to do,
/// so this is for ever.
const FOR_EVER: Duration = Duration::from_secs(1);

/// The far end of a connection.
struct Client(DuplexStream);

#[derive(Debug)]
struct Received {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Received {
    /// The error code of a frame that has one there.
    fn code(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers that open a stream: a few of HPACK's own table, the rest in plain text.
fn opening(path: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    // POST, http, :path, content-type.
    [vec![0x83, 0x86, 0x04], text(path), vec![0x0f, 0x10], text("application/grpc")].concat()
}

fn open(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &opening(DELTA))
}

/// What opens a connection and a stream on it that says no more.
pub(crate) fn silent_stream() -> Vec<u8> {
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(SETTINGS, ACK, 0, &[]),
        open(1),
    ]
    .concat()
}

/// Whether the frames that came have the end of a stream.
pub(crate) fn has_ended(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let [a, b, c, kind, flags, _, _, _, _, payload @ ..] = rest {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if (*kind == HEADERS || *kind == DATA) && flags & 1 != 0 {
            return true;
        }
        let Some(next) = payload.get(length..) else { return false };
        rest = next;
    }
    false
}

impl Client {
    /// A connection to a server of its own, on which nothing has been said.
    fn connect(toy: &Arc<Toy>, options: Options) -> Self {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let incoming = tokio_stream::once(Ok::<_, Infallible>(far)).chain(tokio_stream::pending());
        tokio::spawn(serve(incoming, toy.clone(), options, pending()));
        Self(near)
    }

    /// A connection that has begun in good order, with these settings.
    async fn begin(toy: &Arc<Toy>, options: Options, settings: &[u8]) -> Self {
        let mut client = Self::connect(toy, options);
        client.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        client.0.write_all(&frame(SETTINGS, 0, 0, settings)).await.unwrap();
        client.0.write_all(&frame(SETTINGS, ACK, 0, &[])).await.unwrap();
        client
    }

    /// Says this over and over and reads nothing, until the server takes no more; how many bytes it took.
    async fn repeat(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Ok(Ok(())) = timeout(FOR_EVER, self.0.write_all(bytes)).await {
            taken += bytes.len();
            assert!(taken < 10_000_000, "the server takes everything");
        }
        taken
    }

    /// The next frame, unless the server has closed the connection.
    async fn read(&mut self) -> Option<Received> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Received { kind: head[3], stream: u32::from_be_bytes(head[5..].try_into().unwrap()), payload })
    }

    /// The next frame of this kind.
    async fn read_next(&mut self, kind: u8) -> Received {
        loop {
            let received = self.read().await.expect("a frame should have come");
            if received.kind == kind {
                return received;
            }
        }
    }

    /// Reads until the server closes the connection.
    async fn is_closed(&mut self) {
        let reading = async { while self.read().await.is_some() {} };
        timeout(Duration::from_secs(3600), reading).await.expect("the connection should be closed");
    }

    /// Reads to the end of the connection, which comes with this code.
    async fn is_sent_away(&mut self, code: u32) {
        assert_eq!(self.read_next(GOAWAY).await.code(4), code);
        self.is_closed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn connection_on_which_nothing_is_said_is_closed() {
    let begun = Instant::now();
    let mut client = Client::connect(&Toy::new(), Options::default());
    client.is_closed().await;
    assert!(begun.elapsed() < Duration::from_secs(11));
}

#[tokio::test(start_paused = true)]
async fn connection_is_closed_when_its_probes_are_not_answered() {
    let begun = Instant::now();
    let mut client = Client::begin(&Toy::new(), Options::default(), &[]).await;
    for _ in 0..3 {
        let probe = client.read_next(PING).await;
        client.0.write_all(&frame(PING, ACK, 0, &probe.payload)).await.unwrap();
    }
    assert!(begun.elapsed() > Duration::from_secs(89), "it is not probed so often");
    client.read_next(PING).await;
    client.is_closed().await;
    assert!(begun.elapsed() < Duration::from_secs(200));
}

#[tokio::test(start_paused = true)]
async fn connection_is_closed_when_the_client_falls_silent_after_a_probe_it_passed_over() {
    let begun = Instant::now();
    let mut client = Client::begin(&Toy::new(), Options::default(), &[]).await;
    client.read_next(PING).await;
    client.0.write_all(&frame(PING, 0, 0, &[0; 8])).await.unwrap();
    client.is_closed().await;
    let lasted = begun.elapsed();
    assert!((Duration::from_secs(80)..Duration::from_secs(150)).contains(&lasted), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn streams_beyond_the_limit_are_refused_and_a_client_that_insists_is_sent_away() {
    let toy = Toy::new();
    let options = Options { max_streams_per_connection: 2, ..Options::default() };
    let mut client = Client::begin(&toy, options, &[]).await;
    for stream in [1, 3, 5] {
        client.0.write_all(&open(stream)).await.unwrap();
    }
    let refused = client.read_next(RST_STREAM).await;
    assert_eq!((refused.stream, refused.code(0)), (5, REFUSED_STREAM));
    for stream in (7..5_000).step_by(2) {
        if client.0.write_all(&open(stream)).await.is_err() {
            break;
        }
    }
    client.is_sent_away(ENHANCE_YOUR_CALM).await;
}

#[tokio::test(start_paused = true)]
async fn client_that_opens_streams_to_reset_them_is_sent_away() {
    let mut client = Client::begin(&Toy::new(), Options::default(), &[]).await;
    let pairs = (1..200)
        .step_by(2)
        .flat_map(|stream| [open(stream), frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())].concat());
    client.0.write_all(&pairs.collect::<Vec<u8>>()).await.unwrap();
    client.is_sent_away(ENHANCE_YOUR_CALM).await;
}

#[tokio::test(start_paused = true)]
async fn streams_that_are_opened_and_reset_one_by_one_leave_nothing_behind() {
    let toy = Toy::new();
    let mut client = Client::begin(&toy, Options::default(), &[]).await;
    for stream in (1..2_000).step_by(2) {
        client.0.write_all(&open(stream)).await.unwrap();
        assert_eq!(client.read_next(HEADERS).await.stream, stream);
        client.0.write_all(&frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())).await.unwrap();
    }
    client.0.write_all(&frame(PING, 0, 0, &[0; 8])).await.unwrap();
    client.read_next(PING).await;
    assert_eq!(toy.admitted.lock().iter().filter(|mailbox| mailbox.strong_count() > 0).count(), 0);
    assert_eq!(toy.admitted.lock().len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn headers_that_are_too_long_are_refused_and_endless_ones_end_the_connection() {
    let toy = Toy::new();
    let mut client = Client::begin(&toy, Options::default(), &[]).await;
    // A header of ten thousand bytes, twice.
    let long = [&[0x00, 0x01, b'x', 0x7f, 0x91, 0x4d][..], &[b'y'; 10_000]].concat();
    let headers = [opening(DELTA), long.clone()].concat();
    client.0.write_all(&frame(HEADERS, 0, 1, &headers)).await.unwrap();
    client.0.write_all(&frame(CONTINUATION, END_HEADERS, 1, &long)).await.unwrap();
    assert_eq!(client.read_next(HEADERS).await.stream, 1);
    assert!(toy.admitted.lock().is_empty(), "it is none of the control plane's business");

    client.0.write_all(&frame(HEADERS, 0, 3, &opening(DELTA))).await.unwrap();
    let taken = client.repeat(&frame(CONTINUATION, 0, 3, &long)).await;
    assert!(taken < 1_000_000, "{taken} bytes of headers");
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_no_answers_is_not_read_either_and_goes() {
    for question in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[])] {
        let mut client = Client::begin(&Toy::new(), Options::default(), &[]).await;
        let taken = client.repeat(&question).await;
        assert!(taken < 1_000_000, "{taken} bytes of questions");
        tokio::time::sleep(Duration::from_secs(60)).await;
        client.is_closed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_in_crumbs_that_nobody_can_answer_end_the_connection() {
    // A window of nothing: the server cannot send, and so does not read.
    let no_window = [0, 4, 0, 0, 0, 0];
    let toy = Toy::new();
    let mut client = Client::begin(&toy, Options::default(), &no_window).await;
    client.0.write_all(&open(1)).await.unwrap();
    let taken = client.repeat(&frame(DATA, 0, 1, &[0])).await;
    assert!(taken < 1_000_000, "{taken} bytes of crumbs");
    client.is_sent_away(ENHANCE_YOUR_CALM).await;
    assert_eq!(toy.connected.load(Ordering::SeqCst), 0);
}
