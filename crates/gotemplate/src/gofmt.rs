//! Go's `fmt`: `print`, `println`, `printf` and what `{{ . }}` prints, byte for byte.
//!
//! [`verb`] formats one value under one verb, [`printf`] reads format strings, [`float`] and [`quote`] are the parts of
//! `strconv` they need.

pub(crate) mod float;
mod printf;
pub(crate) mod quote;
mod verb;

use crate::limits::{Budget, LimitError};
use crate::value::Value;

pub(crate) use printf::sprintf;
use verb::{Flags, Printer};

/// `fmt.Sprint`: blanks between operands when neither is a string.
pub(crate) fn sprint(budget: &Budget, values: &[Value]) -> Result<Vec<u8>, LimitError> {
    let mut printer = Printer::new(budget);
    let mut after_string = true;
    for (at, value) in values.iter().enumerate() {
        let is_string = matches!(value, Value::String(_));
        if at > 0 && !is_string && !after_string {
            printer.write(b" ")?;
        }
        printer.value(value, 'v', &Flags::default())?;
        after_string = is_string;
    }
    Ok(printer.finish())
}

/// `fmt.Sprintln`: blanks between all operands and a line break at the end.
pub(crate) fn sprintln(budget: &Budget, values: &[Value]) -> Result<Vec<u8>, LimitError> {
    let mut printer = Printer::new(budget);
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            printer.write(b" ")?;
        }
        printer.value(value, 'v', &Flags::default())?;
    }
    printer.write(b"\n")?;
    Ok(printer.finish())
}

/// A value as `%v` prints it.
pub(crate) fn text(budget: &Budget, value: &Value) -> Result<Vec<u8>, LimitError> {
    sprint(budget, std::slice::from_ref(value))
}
