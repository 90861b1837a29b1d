//! Generates the messages of the cart.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=protos");
    let set = protox::compile(["cart.proto"], ["protos"])?;
    Ok(tonic_prost_build::configure().compile_fds(set)?)
}
