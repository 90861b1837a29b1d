//! Functions that would make a rendering depend on chance, on the machine or on the network.

use crate::error::CallError;
use crate::value::{Functions, Value, Variadic};

const NAMES: [&str; 24] = [
    "env",
    "expandenv",
    "getHostByName",
    "randAlphaNum",
    "randAlpha",
    "randAscii",
    "randNumeric",
    "randInt",
    "randBytes",
    "shuffle",
    "uuidv4",
    "bcrypt",
    "htpasswd",
    "derivePassword",
    "genPrivateKey",
    "genCA",
    "genCAWithKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "buildCustomCert",
    "encryptAES",
    "decryptAES",
];

pub(super) fn add_to(functions: &mut Functions) {
    for name in NAMES {
        functions.add(name, move |_: Variadic<Value>| {
            let message = format!("{name} is not available: rendering here is repeatable and offline");
            Err::<Value, CallError>(message.into())
        });
    }
}
