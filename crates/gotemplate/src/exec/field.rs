//! Chains of names: keys of maps, fields and methods of objects.

use super::{Evaluated, Slot, State, map_item};
use crate::ast::Expr;
use crate::gofmt::quote;
use crate::template::MissingKey;
use crate::value::{MapKind, ObjectData, Value};

impl<'t> State<'t> {
    /// Follows names from a receiver. Arguments belong to the last one, if it is a method.
    pub(super) fn fields(
        &mut self,
        dot: &Slot,
        mut receiver: Slot,
        expr: &'t Expr,
        names: &'t [String],
        args: &'t [Expr],
        piped: Option<Slot>,
    ) -> Evaluated {
        let Some((last, others)) = names.split_last() else { return Ok(receiver) };
        for name in others {
            receiver = self.field(dot, &receiver, expr, name, &[], None)?;
        }
        self.field(dot, &receiver, expr, last, args, piped)
    }

    fn field(
        &mut self,
        dot: &Slot,
        receiver: &Slot,
        expr: &'t Expr,
        name: &str,
        args: &'t [Expr],
        piped: Option<Slot>,
    ) -> Evaluated {
        let (value, type_name) = match receiver {
            Slot::Invalid if self.templates.missing_key() == MissingKey::Error => {
                let key = quote::quoted(name.as_bytes());
                return Err(self.error(format!("nil data; no entry for key {key}")));
            }
            Slot::Invalid => return Ok(Slot::Invalid),
            Slot::Interface(Value::Nil) => {
                return Err(self.error(format!("nil pointer evaluating interface {{}}.{name}")));
            }
            Slot::Interface(value) => (value, "interface {}".into()),
            Slot::Typed(value) => (value, value.type_name()),
        };
        let has_args = !args.is_empty() || piped.is_some();
        match value {
            Value::Map(map) => self.key(map.kind(), map.get(name), name, has_args),
            Value::Object(object) => {
                if let Some(method) = object.method(name) {
                    return self.call(dot, &method, name, super::At::Expr(expr), args, piped);
                }
                if object.is_nil() {
                    return Err(self.error(format!("nil pointer evaluating {}.{name}", object.type_name())));
                }
                if let Some(field) = object.field(name) {
                    if has_args {
                        let message = format!("{name} has arguments but cannot be invoked as function");
                        return Err(self.error(message));
                    }
                    return Ok(Slot::concrete(field));
                }
                if let ObjectData::Map(map) = object.data() {
                    return self.key(map.kind(), map.get(name), name, has_args);
                }
                Err(self.error(format!("can't evaluate field {name} in type {type_name}")))
            }
            _ => Err(self.error(format!("can't evaluate field {name} in type {type_name}"))),
        }
    }

    /// The entry of a map that was found, or what stands for a missing one.
    fn key(&self, kind: MapKind, found: Option<Value>, name: &str, has_args: bool) -> Evaluated {
        if has_args {
            return Err(self.error(format!("{name} is not a method but has arguments")));
        }
        if let Some(value) = found {
            return Ok(map_item(kind, value));
        }
        match self.templates.missing_key() {
            MissingKey::Default => Ok(Slot::Invalid),
            MissingKey::Zero if kind == MapKind::String => Ok(Slot::Typed(Value::string(""))),
            MissingKey::Zero => Ok(Slot::Interface(Value::Nil)),
            MissingKey::Error => {
                let key = quote::quoted(name.as_bytes());
                Err(self.error(format!("map has no entry for key {key}")))
            }
        }
    }
}
