//! The table of flags, one file per area. A row's doc comment is its description.

use super::spec::{Area, Spec};

mod agent;
mod ambient;
mod cli;
mod cni;
mod gateway;
mod injection;
mod pod;
mod registry;
mod security;
mod telemetry;
mod tuning;
mod xds;

pub use agent::keys::*;
pub use ambient::keys::*;
pub use cli::keys::*;
pub use cni::keys::*;
pub use gateway::keys::*;
pub use injection::keys::*;
pub use pod::keys::*;
pub use registry::keys::*;
pub use security::keys::*;
pub use telemetry::keys::*;
pub use tuning::keys::*;
pub use xds::keys::*;

/// Declares the rows of an area and a typed key for each.
macro_rules! flags {
    ($area:ident $(
        $(#[doc = $doc:literal])+
        $name:ident: $kind:ident = $default:literal $(, $property:ident($($argument:expr),*))* ;
    )+) => {
        /// Rows are numbered by this, so that a key needs no search.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Row { $($name),+ }

        pub(super) mod keys {
            use super::Row;
            use crate::flags::spec::{Area, Flag};
            use crate::flags::types;

            $(
                $(#[doc = $doc])+
                pub const $name: Flag<types::$kind> = Flag::new(Area::$area, Row::$name as usize);
            )+
        }

        pub(super) const SPECS: &[$crate::flags::spec::Spec] = {
            #[allow(unused_imports)]
            use keys::*;
            use $crate::flags::kind::Kind;
            use $crate::flags::spec::Spec;
            &[$(
                Spec::new(stringify!($name), Kind::$kind, $default, concat!($($doc),+))
                    $(.$property($($argument),*))*
            ),+]
        };
    };
}
use flags;

/// The rows of an area, in the order of their keys.
pub(super) const fn specs(area: Area) -> &'static [Spec] {
    match area {
        Area::Tuning => tuning::SPECS,
        Area::Xds => xds::SPECS,
        Area::Gateway => gateway::SPECS,
        Area::Ambient => ambient::SPECS,
        Area::Security => security::SPECS,
        Area::Telemetry => telemetry::SPECS,
        Area::Registry => registry::SPECS,
        Area::Injection => injection::SPECS,
        Area::Agent => agent::SPECS,
        Area::Cni => cni::SPECS,
        Area::Cli => cli::SPECS,
        Area::Pod => pod::SPECS,
    }
}
