//! Running an expression.

use super::error::{EvalError, Result};
use super::functions;
use super::meter::Meter;
use super::program::{Expr, Fold, Item, Program, Selection};
use super::value::{Value, scalars_equal};

/// What making a list or a map costs.
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;

impl Program {
    /// Runs the expression over values for the variables it was compiled for; an error where a variable has none.
    pub(in crate::crd) fn run<'a>(
        &'a self,
        variables: Vec<Result<Value<'a>>>,
        meter: &mut Meter,
    ) -> Result<Value<'a>> {
        Run { stack: variables, meter }.value(&self.root)
    }
}

struct Run<'a, 'm> {
    /// The variables. That one of them has no value matters only once it is looked at.
    stack: Vec<Result<Value<'a>>>,
    meter: &'m mut Meter,
}

impl<'a> Run<'a, '_> {
    fn value(&mut self, expression: &'a Expr) -> Result<Value<'a>> {
        match expression {
            Expr::Literal(value) => Ok(value.clone()),
            Expr::Variable(place) => {
                self.meter.charge(1)?;
                self.stack[*place].clone()
            }
            Expr::Take(place) => {
                self.meter.charge(1)?;
                std::mem::replace(&mut self.stack[*place], Ok(Value::Null))
            }
            Expr::Select { operand, field, mode } => self.select(operand, field, *mode),
            Expr::And(sides) => self.junction(sides, false),
            Expr::Or(sides) => self.junction(sides, true),
            Expr::If(parts) => {
                let [condition, yes, no] = &**parts;
                match self.value(condition)? {
                    Value::Bool(true) => self.value(yes),
                    Value::Bool(false) => self.value(no),
                    _ => Err(EvalError::NoSuchOverload),
                }
            }
            Expr::NotStrictlyFalse(inner) => match self.value(inner) {
                Err(EvalError::TooCostly) => Err(EvalError::TooCostly),
                value => Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false))))),
            },
            Expr::Call { function, arguments } => {
                let arguments = arguments.iter().map(|argument| self.value(argument));
                let arguments = arguments.collect::<Result<Vec<_>>>()?;
                function.call(self.meter, arguments)
            }
            Expr::List(items) => self.list(items),
            Expr::Map(entries) => self.map(entries),
            Expr::Fold(fold) => self.fold(fold),
        }
    }

    /// `&&` and `||`: one side can decide alone, be there no value on the other. `deciding` is the value that does.
    fn junction(&mut self, sides: &'a [Expr; 2], deciding: bool) -> Result<Value<'a>> {
        let left = self.value(&sides[0]);
        match left {
            Ok(Value::Bool(truth)) if truth == deciding => return left,
            Err(EvalError::TooCostly) => return left,
            _ => {}
        }
        let right = self.value(&sides[1]);
        match (left, right) {
            (_, Err(EvalError::TooCostly)) => Err(EvalError::TooCostly),
            (_, Ok(Value::Bool(truth))) if truth == deciding => Ok(Value::Bool(deciding)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(_))) => Ok(Value::Bool(!deciding)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn select(&mut self, operand: &'a Expr, field: &'a str, mode: Selection) -> Result<Value<'a>> {
        let operand = self.value(operand)?;
        if mode != Selection::Test {
            self.meter.charge(1)?;
        }
        // Selecting from an optional value is optional again.
        let (operand, mode) = match (operand, mode) {
            (Value::Optional(None), Selection::Test) => return Ok(Value::Bool(false)),
            (Value::Optional(None), _) => return Ok(Value::Optional(None)),
            (Value::Optional(Some(inner)), Selection::Test) => ((*inner).clone(), mode),
            (Value::Optional(Some(inner)), _) => ((*inner).clone(), Selection::Optional),
            (plain, mode) => (plain, mode),
        };
        let Value::Map(map) = operand else { return Err(EvalError::NoSuchOverload) };
        let found = map.find(&Value::from(field), self.meter)?;
        match mode {
            Selection::Plain => found.ok_or_else(|| EvalError::no_such_key(field)),
            Selection::Test => Ok(Value::Bool(found.is_some())),
            Selection::Optional => Ok(found.map_or(Value::Optional(None), Value::some)),
        }
    }

    fn list(&mut self, items: &'a [Item]) -> Result<Value<'a>> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.extend(self.item(item)?);
        }
        self.meter.charge(LIST_COST)?;
        Ok(Value::from(values))
    }

    fn map(&mut self, entries: &'a [(Expr, Item)]) -> Result<Value<'a>> {
        let mut made: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for (key, item) in entries {
            let key = self.value(key)?;
            let Some(value) = self.item(item)? else { continue };
            if made.iter().any(|(present, _)| scalars_equal(present, &key)) {
                return Err(EvalError::new(format!(
                    "Failed with repeated key: {}",
                    &*functions::text_of(&key)?
                )));
            }
            made.push((key, value));
        }
        self.meter.charge(MAP_COST)?;
        Ok(Value::from(made))
    }

    /// A member of a list or map; `None` if it is an optional value that is none.
    fn item(&mut self, item: &'a Item) -> Result<Option<Value<'a>>> {
        match (self.value(&item.value)?, item.optional) {
            (value, false) => Ok(Some(value)),
            (Value::Optional(value), true) => Ok(value.map(|value| (*value).clone())),
            (_, true) => Err(EvalError::NoSuchOverload),
        }
    }

    fn fold(&mut self, fold: &'a Fold) -> Result<Value<'a>> {
        let items = match self.value(&fold.range)? {
            Value::List(list) => list.values().collect::<Vec<_>>(),
            Value::Map(map) => map.keys().into_iter().map(Ok).collect(),
            _ => return Err(EvalError::NoSuchOverload),
        };
        let start = self.value(&fold.start);
        let place = self.stack.len();
        self.stack.push(start);
        for item in items {
            self.stack.push(item);
            let goes_on = self.value(&fold.condition);
            let step = match goes_on {
                Ok(Value::Bool(true)) => Some(self.value(&fold.step)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            };
            self.stack.truncate(place + 1);
            match step {
                None => break,
                Some(Err(EvalError::TooCostly)) => return Err(EvalError::TooCostly),
                Some(value) => self.stack[place] = value,
            }
        }
        let result = self.value(&fold.result);
        self.stack.truncate(place);
        result
    }
}
