//! The bytes of a connection: notes when some arrive, and writes small ones at once.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wake_set::WakeSet;

/// Buffers of up to this size together are written as one: copying them costs less than a vectored write.
const SMALL: usize = 2048;

/// The I/O of a connection.
pub(super) struct MeteredIo<IO> {
    io: IO,
    wake_set: Arc<WakeSet>,
}

impl<IO> MeteredIo<IO> {
    pub(super) fn new(io: IO, wake_set: Arc<WakeSet>) -> Self {
        Self { io, wake_set }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for MeteredIo<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if read.is_ready() {
            self.wake_set.note_received();
        }
        read
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for MeteredIo<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let size: usize = bufs.iter().map(|buf| buf.len()).sum();
        if size > SMALL {
            return Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        }
        let mut whole = [0; SMALL];
        let mut end = 0;
        for buf in bufs {
            whole[end..end + buf.len()].copy_from_slice(buf);
            end += buf.len();
        }
        Pin::new(&mut self.io).poll_write(cx, &whole[..end])
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
