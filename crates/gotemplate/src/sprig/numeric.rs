//! Arithmetic.

use super::cast::{to_float, to_int};
use crate::error::CallError;
use crate::gofmt;
use crate::goparse;
use crate::limits::{Budget, LimitError};
use crate::value::{Elem, Functions, Int64, List, Str, Value, Variadic};

pub(super) fn add_to(functions: &mut Functions) {
    functions
        .add("atoi", |text: Str| goparse::int(&text.to_text(), 10).unwrap_or(0))
        .add("int", |value: Value| to_int(&value))
        .add("int64", |value: Value| Int64(to_int(&value)))
        .add("float64", |value: Value| to_float(&value))
        .add("toDecimal", |budget: &Budget, value: Value| {
            let text = gofmt::text(budget, &value)?;
            Ok::<_, LimitError>(Int64(goparse::int(&String::from_utf8_lossy(&text), 8).unwrap_or(0)))
        })
        .add("add1", |value: Value| Int64(to_int(&value).wrapping_add(1)))
        .add("add", |values: Variadic<Value>| {
            Int64(values.0.iter().fold(0, |sum: i64, value| sum.wrapping_add(to_int(value))))
        })
        .add("sub", |a: Value, b: Value| Int64(to_int(&a).wrapping_sub(to_int(&b))))
        .add("mul", |a: Value, values: Variadic<Value>| {
            Int64(values.0.iter().fold(to_int(&a), |product, value| product.wrapping_mul(to_int(value))))
        })
        .add("div", |a: Value, b: Value| divided(&a, &b, i64::wrapping_div))
        .add("mod", |a: Value, b: Value| divided(&a, &b, i64::wrapping_rem))
        .add("add1f", |value: Value| decimal::fold(to_float(&value), &[1.0], decimal::Operation::Add))
        .add("addf", |values: Variadic<Value>| decimal::fold(0.0, &floats(&values), decimal::Operation::Add))
        .add("subf", |a: Value, values: Variadic<Value>| {
            decimal::fold(to_float(&a), &floats(&values), decimal::Operation::Subtract)
        })
        .add("mulf", |a: Value, values: Variadic<Value>| {
            decimal::fold(to_float(&a), &floats(&values), decimal::Operation::Multiply)
        })
        .add("divf", |a: Value, values: Variadic<Value>| {
            decimal::fold(to_float(&a), &floats(&values), decimal::Operation::Divide)
        })
        .add("maxf", |a: Value, values: Variadic<Value>| {
            floats(&values)
                .into_iter()
                .fold(to_float(&a), |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) })
        })
        .add("minf", |a: Value, values: Variadic<Value>| {
            floats(&values)
                .into_iter()
                .fold(to_float(&a), |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) })
        })
        .add("min", |a: Value, values: Variadic<Value>| {
            Int64(values.0.iter().map(to_int).fold(to_int(&a), i64::min))
        })
        .add("floor", |value: Value| to_float(&value).floor())
        .add("ceil", |value: Value| to_float(&value).ceil())
        .add("round", round)
        .add("until", |budget: &Budget, count: i64| {
            until_step(budget, 0, count, if count < 0 { -1 } else { 1 }).map(ints)
        })
        .add("untilStep", |budget: &Budget, start: i64, stop: i64, step: i64| {
            until_step(budget, start, stop, step).map(ints)
        })
        .add("seq", seq);
    for name in ["max", "biggest"] {
        functions.add(name, |a: Value, values: Variadic<Value>| {
            Int64(values.0.iter().map(to_int).fold(to_int(&a), i64::max))
        });
    }
}

fn floats(values: &Variadic<Value>) -> Vec<f64> {
    values.0.iter().map(to_float).collect()
}

fn divided(a: &Value, b: &Value, operation: fn(i64, i64) -> i64) -> Result<Int64, CallError> {
    match to_int(b) {
        0 => Err("runtime error: integer divide by zero".into()),
        b => Ok(Int64(operation(to_int(a), b))),
    }
}

fn ints(items: Vec<i64>) -> Value {
    Value::List(List::typed(Elem::Int, items.into_iter().map(Value::int).collect()))
}

fn until_step(budget: &Budget, start: i64, stop: i64, step: i64) -> Result<Vec<i64>, LimitError> {
    let descends = stop < start;
    if (descends && step >= 0) || (!descends && step <= 0) {
        return Ok(Vec::new());
    }
    let count = start.abs_diff(stop).div_ceil(step.unsigned_abs());
    budget.charge_steps(count)?;
    budget.charge_bytes(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(size_of::<Value>()))?;
    let advance = |at: &i64| at.checked_add(step);
    let before_stop = |at: &i64| if descends { *at > stop } else { *at < stop };
    Ok(std::iter::successors(Some(start), advance).take_while(before_stop).collect())
}

fn seq(budget: &Budget, bounds: Variadic<i64>) -> Result<String, LimitError> {
    let items = match *bounds.0 {
        [end] => {
            let step = if end < 1 { -1 } else { 1 };
            until_step(budget, 1, end.saturating_add(step), step)?
        }
        [start, end] => {
            let step = if end < start { -1 } else { 1 };
            until_step(budget, start, end.saturating_add(step), step)?
        }
        [start, step, end] if end < start && step > 0 => Vec::new(),
        [start, step, end] => {
            let past = if end < start { -1 } else { 1 };
            until_step(budget, start, end.saturating_add(past), step)?
        }
        _ => Vec::new(),
    };
    let items: Vec<String> = items.iter().map(i64::to_string).collect();
    Ok(items.join(" "))
}

fn round(value: Value, places: i64, threshold: Variadic<f64>) -> f64 {
    let threshold = threshold.0.first().copied().unwrap_or(0.5);
    let power = 10f64.powi(i32::try_from(places).unwrap_or(i32::MAX));
    let digits = power * to_float(&value);
    let rounded = if digits.fract() >= threshold { digits.ceil() } else { digits.floor() };
    rounded / power
}

/// Sums of decimal fractions as people expect them: 0.1 + 0.2 is 0.3.
mod decimal {
    use crate::error::CallError;

    #[derive(Clone, Copy)]
    pub(super) enum Operation {
        Add,
        Subtract,
        Multiply,
        Divide,
    }

    /// A number times a power of ten.
    #[derive(Clone, Copy)]
    struct Decimal {
        digits: i128,
        exponent: i32,
    }

    /// Decimal places of a quotient.
    const DIVISION_PLACES: i32 = 16;

    pub(super) fn fold(first: f64, others: &[f64], operation: Operation) -> Result<f64, CallError> {
        let mut float = first;
        let mut exact = Decimal::new(first);
        for &other in others {
            if matches!(operation, Operation::Divide) && other == 0.0 {
                return Err("decimal division by 0".into());
            }
            exact = exact.zip(Decimal::new(other)).and_then(|(a, b)| a.apply(b, operation));
            float = match (exact, operation) {
                (Some(exact), _) => exact.to_float(),
                (None, Operation::Add) => float + other,
                (None, Operation::Subtract) => float - other,
                (None, Operation::Multiply) => float * other,
                (None, Operation::Divide) => float / other,
            };
        }
        Ok(float)
    }

    impl Decimal {
        /// The shortest decimal number that reads back as the float.
        fn new(float: f64) -> Option<Self> {
            let text = format!("{float:e}");
            let (mantissa, exponent) = text.split_once('e')?;
            let places = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len());
            let digits = mantissa.replace('.', "").parse().ok()?;
            let exponent = exponent.parse::<i32>().ok()? - i32::try_from(places).ok()?;
            Some(Self { digits, exponent })
        }

        fn to_float(self) -> f64 {
            format!("{}e{}", self.digits, self.exponent).parse().unwrap_or(f64::NAN)
        }

        fn apply(self, other: Self, operation: Operation) -> Option<Self> {
            match operation {
                Operation::Add => self.add(other),
                Operation::Subtract => self.add(Self { digits: -other.digits, ..other }),
                Operation::Multiply => Some(Self {
                    digits: self.digits.checked_mul(other.digits)?,
                    exponent: self.exponent.checked_add(other.exponent)?,
                }),
                Operation::Divide => self.divide(other),
            }
        }

        fn add(self, other: Self) -> Option<Self> {
            let exponent = self.exponent.min(other.exponent);
            let digits = self.scaled(exponent)?.checked_add(other.scaled(exponent)?)?;
            Some(Self { digits, exponent })
        }

        /// The digits at a smaller exponent.
        fn scaled(self, exponent: i32) -> Option<i128> {
            let power = u32::try_from(self.exponent.checked_sub(exponent)?).ok()?;
            self.digits.checked_mul(10i128.checked_pow(power)?)
        }

        /// The quotient, rounded half away from zero.
        fn divide(self, other: Self) -> Option<Self> {
            let dividend = Self { exponent: self.exponent - other.exponent, ..self };
            if dividend.exponent < -DIVISION_PLACES {
                return None;
            }
            let dividend = dividend.scaled(-DIVISION_PLACES)?;
            let (quotient, rest) = (dividend / other.digits, dividend % other.digits);
            let up = rest.unsigned_abs() * 2 >= other.digits.unsigned_abs();
            let sign = if (dividend < 0) == (other.digits < 0) { 1 } else { -1 };
            Some(Self { digits: quotient + if up { sign } else { 0 }, exponent: -DIVISION_PLACES })
        }
    }
}
