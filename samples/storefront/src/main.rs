//! A small shop for trying a mesh. One program, whose role is its first argument.
//!
//! ```text
//!  load ─► gateway ─► web ─┬─ HTTP ─► catalogue ─ TCP ─► inventory
//!                          ├─ HTTP ─► reviews v1, v2, v3
//!                          ├─ gRPC ─► cart
//!                          └─ HTTP ─► payment (outside the mesh)
//! ```
//!
//! Services are found by Kubernetes' variables (`CART_SERVICE_HOST`, `CART_SERVICE_PORT`), so the program runs the same in a
//! cluster and below `canopus up`. It knows nothing of proxies, certificates or retries.
#![allow(clippy::print_stdout, reason = "a program's log is its standard output")]

mod cart;
mod catalogue;
mod client;
mod inventory;
mod load;
mod payment;
mod place;
mod reviews;
mod web;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

/// A part of the shop.
#[derive(Parser)]
struct Arguments {
    /// Which part.
    role: Role,
    /// Requests in a second, for `load`.
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Web,
    Catalogue,
    Inventory,
    Cart,
    Reviews,
    Payment,
    Load,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut ends = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = play(&arguments) => ended,
        // The first process of a container has to handle the signal; otherwise it is killed half a minute later.
        _ = ends.recv() => Ok(()),
    }
}

async fn play(arguments: &Arguments) -> Result<()> {
    match arguments.role {
        Role::Web => web::serve().await,
        Role::Catalogue => catalogue::serve().await,
        Role::Inventory => inventory::serve().await,
        Role::Cart => cart::serve().await,
        Role::Reviews => reviews::serve().await,
        Role::Payment => payment::serve().await,
        Role::Load => load::send(arguments.rate).await,
    }
}
