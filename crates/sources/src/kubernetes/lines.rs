//! Lines of a body that has no end.

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;

use super::server::Failure;

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// What it says, without the line break.
    Text(Bytes),
    /// The line is longer than allowed: this is how it begins, the rest was dropped.
    TooLong(Bytes),
}

/// Cuts a body into lines no longer than allowed.
#[derive(Debug)]
pub(super) struct Lines<B> {
    body: B,
    buffer: BytesMut,
    /// How much of the buffer has no line break.
    scanned: usize,
    max: usize,
    /// The beginning of a line that is too long, while the rest of it is still to come.
    head: Option<Bytes>,
}

impl<B> Lines<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    pub(super) fn new(body: B, max: usize) -> Self {
        Self { body, buffer: BytesMut::new(), scanned: 0, max, head: None }
    }

    /// The next line; `None` at the end. What follows the last line break is lost: it is no whole line.
    ///
    /// Cancel safe: no bytes are lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Line>, Failure> {
        loop {
            if let Some(line) = self.ready() {
                return Ok(Some(line));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Failure::Transport(error.to_string())),
                Some(Ok(frame)) => self.take(frame.into_data().unwrap_or_default()),
            }
        }
    }

    /// The next line, if it is here already.
    pub(super) fn ready(&mut self) -> Option<Line> {
        let found = self.buffer[self.scanned..].iter().position(|&byte| byte == b'\n');
        let Some(end) = found.map(|at| self.scanned + at) else {
            self.scanned = self.buffer.len();
            return None;
        };
        self.scanned = 0;
        let line = self.buffer.split_to(end).freeze();
        self.buffer.advance(1);
        Some(match self.head.take() {
            Some(head) => Line::TooLong(head),
            None if line.len() > self.max => Line::TooLong(line),
            None => Line::Text(line),
        })
    }

    /// Takes the next bytes, once all that came before was looked at.
    fn take(&mut self, data: Bytes) {
        if self.head.is_some() {
            // No line break was in it, so it belongs to a line whose beginning is all that counts.
            self.buffer.clear();
            self.scanned = 0;
        } else if self.buffer.len() > self.max {
            self.head = Some(self.buffer.split().freeze());
            self.scanned = 0;
        }
        self.buffer.extend_from_slice(&data);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::{Body, Frame};

    use super::*;

    /// A body of these pieces.
    struct Pieces(VecDeque<&'static str>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let piece = self.0.pop_front();
            Poll::Ready(piece.map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))))
        }
    }

    async fn lines(pieces: &[&'static str], max: usize) -> Vec<Line> {
        let mut lines = Lines::new(Pieces(pieces.iter().copied().collect()), max);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(line);
        }
        found
    }

    fn text(text: &'static str) -> Line {
        Line::Text(Bytes::from_static(text.as_bytes()))
    }

    fn too_long(head: &'static str) -> Line {
        Line::TooLong(Bytes::from_static(head.as_bytes()))
    }

    #[tokio::test]
    async fn lines_may_come_in_pieces_and_together() {
        let found = lines(&["one\ntwo\nth", "", "ree", "\n\nunfinished"], 10).await;
        assert_eq!(found, [text("one"), text("two"), text("three"), text("")]);
    }

    #[tokio::test]
    async fn beginning_of_a_long_line_is_kept_and_the_next_is_read() {
        for (pieces, head) in [
            (&["0123456789abcdef\nnext\n"][..], "0123456789abcdef"),
            (&["0123456", "789abc", "def", "\nnext", "\n"], "0123456789abc"),
            (&["0123456789abc", "0123456789abc", "0123456789abc", "x\nnext\n"], "0123456789abc"),
        ] {
            assert_eq!(lines(pieces, 10).await, [too_long(head), text("next")], "{pieces:?}");
        }
        assert_eq!(lines(&["0123456789\n"], 10).await, [text("0123456789")]);
    }

    #[tokio::test]
    async fn rest_of_a_long_line_takes_no_memory() {
        let mut lines =
            Lines::new(Pieces(["0123456789"; 1000].into_iter().chain(["\nnext\n"]).collect()), 25);
        assert_eq!(lines.next().await.unwrap(), Some(too_long("012345678901234567890123456789")));
        assert!(lines.buffer.capacity() < 100, "{}", lines.buffer.capacity());
        assert_eq!(lines.next().await.unwrap(), Some(text("next")));
    }
}
