//! A body in pieces, as they were received.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;

/// What ends a page in the OpenMetrics format.
const END: &[u8] = b"# EOF";

/// A body in pieces.
#[derive(Clone, Debug, Default)]
pub struct Page {
    chunks: VecDeque<Bytes>,
    length: usize,
}

impl From<Bytes> for Page {
    fn from(bytes: Bytes) -> Self {
        let mut page = Self::default();
        page.push(bytes);
        page
    }
}

impl Page {
    /// Reads a whole body.
    pub(super) async fn read<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Result<Self, B::Error> {
        let mut page = Self::default();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                page.push(data);
            }
        }
        Ok(page)
    }

    pub(super) fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.length += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    pub(super) fn append(&mut self, other: Self) {
        self.length += other.length;
        self.chunks.extend(other.chunks);
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn last_byte(&self) -> Option<u8> {
        self.chunks.back()?.last().copied()
    }

    pub(super) fn chunks(&self) -> impl Iterator<Item = &Bytes> {
        self.chunks.iter()
    }

    /// Removes the end of an OpenMetrics page, so that something can follow.
    pub(super) fn remove_end_marker(&mut self) {
        // The marker may be spread over chunks: as many of the last ones are looked at as have room for it.
        let mut tail = Bytes::new();
        while tail.trim_ascii_end().len() < END.len() {
            let Some(chunk) = self.chunks.pop_back() else { break };
            self.length -= chunk.len();
            tail = if tail.is_empty() { chunk } else { Bytes::from([chunk, tail].concat()) };
        }
        let kept = tail.trim_ascii_end().strip_suffix(END).map_or(tail.len(), <[u8]>::len);
        tail.truncate(kept);
        self.push(tail);
    }
}

impl Body for Page {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = self.chunks.pop_front();
        self.length -= chunk.as_ref().map_or(0, Bytes::len);
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.length).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_marker_is_removed_however_it_is_written_and_received() {
        for (text, kept) in [
            ("a 1\n# EOF\n", "a 1\n"),
            ("a 1\r\n# EOF\r\n ", "a 1\r\n"),
            ("a 1\n", "a 1\n"),
            ("# EOF", ""),
            ("", ""),
        ] {
            for size in 1..=text.len().max(1) {
                let mut page = Page::default();
                for chunk in text.as_bytes().chunks(size) {
                    page.push(Bytes::copy_from_slice(chunk));
                }
                page.remove_end_marker();
                let whole: Vec<u8> = page.chunks().flatten().copied().collect();
                assert_eq!((whole.as_slice(), page.len()), (kept.as_bytes(), kept.len()), "{size}");
            }
        }
    }
}
