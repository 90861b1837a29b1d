//! gRPC messages, cut out of an HTTP/2 body without being copied.

use std::collections::VecDeque;

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// The flag for compression and the length.
const PREFIX: usize = 5;
/// Larger messages end the stream. Parity: pilot-agent takes anything; nothing that large is a configuration.
const MAX_MESSAGE: usize = 512 << 20;

/// Why there are no more messages.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error("{0}")]
    Transport(#[from] hyper::Error),
    #[error("a message of {0} bytes is too large")]
    Size(usize),
    #[error("the stream ended within a message")]
    Cut,
}

/// A message with its prefix, in the chunks it came in.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    chunks: VecDeque<Bytes>,
}

impl Message {
    /// A message of these bytes.
    pub(super) fn new(body: &[u8]) -> Self {
        let mut framed = BytesMut::with_capacity(PREFIX + body.len());
        framed.put_u8(0);
        framed.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
        framed.put_slice(body);
        Self { chunks: [framed.freeze()].into() }
    }

    /// The bytes after the prefix.
    pub(super) fn body(&self) -> Chunks {
        let mut chunks = Chunks::new(self.chunks.clone());
        chunks.advance(PREFIX.min(chunks.remaining()));
        chunks
    }

    /// The bytes of the message, with its prefix.
    pub(super) fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    pub(super) fn into_chunks(self) -> VecDeque<Bytes> {
        self.chunks
    }

    /// The whole message in one piece; free if it came in one.
    pub(super) fn into_bytes(mut self) -> Bytes {
        match self.chunks.len() {
            0 => Bytes::new(),
            1 => self.chunks.pop_front().unwrap_or_default(),
            _ => {
                let mut chunks = Chunks::new(self.chunks);
                chunks.copy_to_bytes(chunks.remaining())
            }
        }
    }
}

/// Chunks, read one after the other.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    chunks: VecDeque<Bytes>,
    remaining: usize,
}

impl Chunks {
    fn new(chunks: VecDeque<Bytes>) -> Self {
        let remaining = chunks.iter().map(Bytes::len).sum();
        Self { chunks, remaining }
    }
}

impl Buf for Chunks {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.chunks.iter().find(|chunk| !chunk.is_empty()).map_or(&[], |chunk| chunk)
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let Some(first) = self.chunks.front_mut() else { return };
            let here = count.min(first.len());
            first.advance(here);
            count -= here;
            self.remaining -= here;
            if first.is_empty() {
                self.chunks.pop_front();
            }
        }
    }

    /// Shares the bytes where they are in one chunk, and copies them together where they are not.
    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        match self.chunks.front_mut() {
            Some(first) if first.len() >= count => {
                let bytes = first.split_to(count);
                self.remaining -= count;
                if first.is_empty() {
                    self.chunks.pop_front();
                }
                bytes
            }
            _ => {
                let mut joined = BytesMut::with_capacity(count.min(self.remaining()));
                joined.put(self.take(count));
                joined.freeze()
            }
        }
    }
}

/// The messages of a body.
pub(super) struct Frames {
    body: Incoming,
    cutter: Cutter,
    trailers: Option<HeaderMap>,
}

impl Frames {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, cutter: Cutter::default(), trailers: None }
    }

    /// The next message; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, FrameError> {
        loop {
            if let Some(message) = self.cutter.cut()? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                None if self.cutter.is_empty() => return Ok(None),
                None => return Err(FrameError::Cut),
                Some(frame) => match frame?.into_data() {
                    Ok(data) => self.cutter.push(data),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
            }
        }
    }

    /// How the other side ended the stream, if it said so.
    pub(super) fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }
}

/// Cuts messages out of the data of a body.
#[derive(Default)]
pub(super) struct Cutter {
    buffered: VecDeque<Bytes>,
    size: usize,
}

impl Cutter {
    fn is_empty(&self) -> bool {
        self.size == 0
    }

    pub(super) fn push(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.size += data.len();
            self.buffered.push_back(data);
        }
    }

    /// A message, if all of it is there.
    pub(super) fn cut(&mut self) -> Result<Option<Message>, FrameError> {
        if self.size < PREFIX {
            return Ok(None);
        }
        let mut prefix = Vec::with_capacity(PREFIX);
        for chunk in &self.buffered {
            prefix.extend_from_slice(&chunk[..chunk.len().min(PREFIX - prefix.len())]);
            if prefix.len() == PREFIX {
                break;
            }
        }
        let length = prefix[1..].iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
        if length > MAX_MESSAGE {
            return Err(FrameError::Size(length));
        }
        let mut wanted = PREFIX + length;
        if self.size < wanted {
            return Ok(None);
        }
        self.size -= wanted;
        let mut message = Message::default();
        while wanted > 0 {
            let Some(first) = self.buffered.front_mut() else { return Err(FrameError::Cut) };
            let part = first.split_to(wanted.min(first.len()));
            wanted -= part.len();
            if first.is_empty() {
                self.buffered.pop_front();
            }
            message.chunks.push_back(part);
        }
        Ok(Some(message))
    }
}
