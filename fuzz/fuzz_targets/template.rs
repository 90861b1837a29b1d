//! Any text as a template, with all functions and a little data: it may fail, but neither panic nor run on.

#![no_main]

use canopus_gotemplate::{Functions, Limits, Templates, Value, helm, sprig};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut functions = Functions::builtin();
    helm::add_to(&mut functions, &sprig::Options::default());
    let limits = Limits { steps: 100_000, bytes: 1 << 20, ..Limits::default() };
    let mut templates = Templates::new("fuzz", functions).with_limits(limits);
    if templates.parse("fuzz", text).is_ok() {
        let inner = Value::map([("k", Value::int(1)), ("n", Value::Nil)]);
        let list = Value::list([Value::string("a"), Value::Float(1.5), inner.clone()]);
        let data = Value::map([("s", Value::string("text")), ("l", list), ("m", inner), ("t", Value::Bool(true))]);
        let _ = templates.render("fuzz", &data);
    }
});
