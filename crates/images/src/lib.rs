//! Container images, made without a container engine.
//!
//! ```text
//!  programs, packages ──► Rootfs ──► Layer ──► Image ──► archive (OCI layout, also readable by `docker load`)
//!                        (files)    (tar)     (config, names)
//! ```
//!
//! **Invariant.** Equal inputs give equal bytes: entries are sorted, owned by root and dated to the epoch, and nothing of the
//! machine that builds them enters.
//!
//! Start with [`canopusd`], [`proxy`] and [`cni`], the images of the project. Must not know any product crate: programs are files to it.

mod archive;
mod layer;
mod product;
mod rootfs;
mod sbom;

pub use archive::{Image, Labels};
pub use layer::{Compression, Layer};
pub use product::{Programs, canopusd, cni, proxy, runtime, storefront};
pub use rootfs::Rootfs;
pub use sbom::{Package, Sbom, debian_packages};
