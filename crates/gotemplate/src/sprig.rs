//! The functions of sprig 3, as Helm and Istio's templates have them.
//!
//! Each behaves as in Go, down to the words of its errors, with these exceptions:
//!
//! - What depends on the machine or on chance fails with an error that says so, unless the caller adds a function of that
//!   name: `env`, `expandenv`, `getHostByName`, `randAlphaNum`, `randAlpha`, `randAscii`, `randNumeric`, `randInt`,
//!   `randBytes`, `shuffle`, `uuidv4`, `bcrypt`, `htpasswd`, `derivePassword`, `genPrivateKey`, `genCA`, `genCAWithKey`,
//!   `genSelfSignedCert`, `genSelfSignedCertWithKey`, `genSignedCert`, `genSignedCertWithKey`, `buildCustomCert`,
//!   `encryptAES`, `decryptAES`. `now`, `ago` and dates without a value need [`Options::now`].
//! - Times have no zones but UTC, which `Local` stands for.
//! - `keys` and `values` are sorted by key, where Go's order is random.
//! - Errors of the JSON parser have other words.
//! - `addf` and its relatives compute with 38 decimal digits, beyond which they round as `float64` does.

mod case;
mod cast;
mod date;
mod defaults;
mod dict;
mod encode;
pub(crate) mod json;
mod list;
mod numeric;
pub(crate) mod path;
mod reflect;
mod regex;
mod semver;
mod strings;
mod unavailable;
mod url;

use std::time::SystemTime;

pub(crate) use date::duration;
pub(crate) use dict::deep_copy;
pub(crate) use encode::base64;

use crate::gofmt;
use crate::limits::{Budget, LimitError};
use crate::value::{Functions, Str, Value};

/// What the functions need to know of the world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The time that `now` gives.
    pub now: Option<SystemTime>,
}

/// Adds all functions of sprig.
pub fn add_to(functions: &mut Functions, options: &Options) {
    strings::add_to(functions);
    case::add_to(functions);
    numeric::add_to(functions);
    list::add_to(functions);
    dict::add_to(functions);
    defaults::add_to(functions);
    json::add_to(functions);
    encode::add_to(functions);
    path::add_to(functions);
    reflect::add_to(functions);
    regex::add_to(functions);
    semver::add_to(functions);
    url::add_to(functions);
    date::add_to(functions, options.now);
    unavailable::add_to(functions);
}

/// The text of a value where a string is wanted.
fn text_of(budget: &Budget, value: &Value) -> Result<Str, LimitError> {
    match value {
        Value::String(text) | Value::Bytes(text) => Ok(text.clone()),
        other => Ok(gofmt::text(budget, other)?.into()),
    }
}
