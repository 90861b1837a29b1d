//! `canopusd`.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// Thousands of sessions come, go and hold little each: the system's allocator would keep what they once needed.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    canopus_daemon::command::main()
}
