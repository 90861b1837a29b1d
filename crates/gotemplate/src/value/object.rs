//! Values with fields and methods that the caller supplies.

use std::borrow::Cow;
use std::fmt;

use super::{Function, List, Map, Str, Value};

/// A Go value that is no plain data: a struct, or anything with methods.
///
/// A template reads `.Name` as a method first, then as a field, then, for an object that [looks like](Object::data) a map,
/// as a key. A name that is none of these is an error for a struct, as in Go.
pub trait Object: fmt::Debug + Send + Sync {
    /// The type in Go's words, for `printf "%T"` and errors: `*common.Capabilities`.
    fn type_name(&self) -> Cow<'static, str>;

    /// A field of a struct.
    fn field(&self, _name: &str) -> Option<Value> {
        None
    }

    /// A method, bound to this object.
    fn method(&self, _name: &str) -> Option<Function> {
        None
    }

    /// What the object behaves like where a template ranges over it, indexes it or tests it.
    fn data(&self) -> ObjectData {
        ObjectData::Struct
    }

    /// The text that `{{ . }}` prints.
    fn print(&self) -> String;

    /// Whether this is a nil pointer: false to `if`, without fields, but its methods can be called.
    fn is_nil(&self) -> bool {
        false
    }

    /// The JSON text, for a struct whose fields are encoded in the order of their declaration. Otherwise JSON is made of
    /// [`Object::encode`], with keys sorted.
    fn to_json(&self) -> Option<Vec<u8>> {
        None
    }

    /// The plain value that encoders (JSON, YAML) see.
    fn encode(&self) -> Value {
        Value::Nil
    }
}

/// See [`Object::data`].
#[derive(Clone, Debug)]
pub enum ObjectData {
    /// A struct or a pointer to one: always true, no length.
    Struct,
    /// A named map type.
    Map(Map),
    /// A named slice type.
    List(List),
    /// A named string type.
    String(Str),
    /// A named integer type.
    Int(i64),
}
