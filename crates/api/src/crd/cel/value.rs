//! The values expressions are about.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use canopus_base::duration::Duration;
use canopus_base::net::IpNet;
use canopus_base::quantity::Quantity;
use jiff::Timestamp;

use super::data::{Entries, Items};
use super::error::{EvalError, Result};
use super::meter::Meter;
use super::url::Url;
use crate::crd::pattern::Pattern;

/// A value. What comes from the object is borrowed from it; clones are cheap.
#[derive(Clone, Debug)]
pub(in crate::crd) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    List(List<'a>),
    Map(Map<'a>),
    Duration(Duration),
    Timestamp(Timestamp),
    Type(&'static str),
    Optional(Option<Arc<Value<'a>>>),
    Url(Arc<Url>),
    Ip(IpAddr),
    Cidr(IpNet),
    Quantity(Arc<Quantity>),
    /// A regular expression that stands in the expression itself; a text to everybody else.
    Pattern(Arc<Pattern>),
}

/// A text of the object, or one made by the expression.
#[derive(Clone, Debug)]
pub(in crate::crd) enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

/// A list of the object, or one made by the expression.
#[derive(Clone, Debug)]
pub(in crate::crd) enum List<'a> {
    Data(Items<'a>),
    Made(Arc<Vec<Value<'a>>>),
}

/// A map of the object, or one made by the expression.
#[derive(Clone, Debug)]
pub(in crate::crd) enum Map<'a> {
    Data(Entries<'a>),
    Made(Arc<Vec<(Value<'a>, Value<'a>)>>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::String(Text::Shared(text.into()))
    }
}

impl From<bool> for Value<'_> {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<i64> for Value<'_> {
    fn from(int: i64) -> Self {
        Self::Int(int)
    }
}

impl<'a> From<Vec<Value<'a>>> for Value<'a> {
    fn from(items: Vec<Value<'a>>) -> Self {
        Self::List(List::Made(Arc::new(items)))
    }
}

impl<'a> From<Vec<(Value<'a>, Value<'a>)>> for Value<'a> {
    fn from(entries: Vec<(Value<'a>, Value<'a>)>) -> Self {
        Self::Map(Map::Made(Arc::new(entries)))
    }
}

impl<'a> Value<'a> {
    pub(super) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// The number of a count.
    pub(super) fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// The name of the type, as `type()` and messages have it.
    pub(super) const fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::UInt(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) | Self::Pattern(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Quantity(_) => "kubernetes.Quantity",
        }
    }

    /// How large it is in the sense of `size()`: one for what has no size.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::String(text) => text.chars().count(),
            Self::Pattern(pattern) => pattern.source().chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Optional(Some(value)) => value.size(),
            Self::Ip(address) => {
                if address.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Self::Cidr(prefix) => usize::from(prefix.prefix_len()).div_ceil(8),
            _ => 1,
        }
    }

    /// Whether two values are equal. Values of different types are not, except numbers that amount to the same.
    pub(super) fn equals(&self, other: &Self, meter: &mut Meter) -> Result<bool> {
        match (self, other) {
            (Self::List(a), Self::List(b)) => lists_equal(a, b, meter),
            (Self::Map(a), Self::Map(b)) => maps_equal(a, b, meter),
            (Self::Optional(Some(a)), Self::Optional(Some(b))) => a.equals(b, meter),
            (Self::Optional(a), Self::Optional(b)) => Ok(a.is_none() && b.is_none()),
            (Self::Null, Self::Null) => Ok(true),
            (Self::Type(a), Self::Type(b)) => Ok(a == b),
            (Self::Url(a), Self::Url(b)) => Ok(a == b),
            (Self::Ip(a), Self::Ip(b)) => Ok(a == b),
            (Self::Cidr(a), Self::Cidr(b)) => Ok(a == b),
            (Self::Quantity(a), Self::Quantity(b)) => Ok(a == b),
            _ => Ok(self.compare(other) == Ok(Some(Ordering::Equal))),
        }
    }

    /// Which of two values is the larger; `None` if a number is not one.
    pub(super) fn compare(&self, other: &Self) -> Result<Option<Ordering>> {
        Ok(match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::UInt(a), Self::UInt(b)) => Some(a.cmp(b)),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Int(a), Self::UInt(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::UInt(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Int(a), Self::Double(b)) => compare_with_float(i128::from(*a), *b),
            (Self::UInt(a), Self::Double(b)) => compare_with_float(i128::from(*a), *b),
            (Self::Double(a), Self::Int(b)) => compare_with_float(i128::from(*b), *a).map(Ordering::reverse),
            (Self::Double(a), Self::UInt(b)) => compare_with_float(i128::from(*b), *a).map(Ordering::reverse),
            (Self::String(a), Self::String(b)) => Some((**a).cmp(&**b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            _ => return Err(EvalError::NoSuchOverload),
        })
    }
}

/// Compares an integer with a float, exactly.
fn compare_with_float(int: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // Beyond these bounds every float is larger than every integer there is; within them its whole part is exact.
    let whole = float.trunc().clamp(-2e19, 2e19);
    Some(int.cmp(&(whole as i128)).then_with(|| 0.0.partial_cmp(&(float - whole)).unwrap_or(Ordering::Equal)))
}

fn lists_equal<'a>(a: &List<'a>, b: &List<'a>, meter: &mut Meter) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for index in 0..a.len() {
        meter.charge(1)?;
        if !a.get(index)?.equals(&b.get(index)?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn maps_equal<'a>(a: &Map<'a>, b: &Map<'a>, meter: &mut Meter) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for key in a.keys() {
        let equal = match (a.find(&key, meter)?, b.find(&key, meter)?) {
            (Some(a), Some(b)) => a.equals(&b, meter)?,
            (a, b) => a.is_none() && b.is_none(),
        };
        if !equal {
            return Ok(false);
        }
    }
    Ok(true)
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Data(items) => items.len(),
            Self::Made(items) => items.len(),
        }
    }

    /// The item at a place that the list has.
    pub(super) fn get(&self, index: usize) -> Result<Value<'a>> {
        let item = match self {
            Self::Data(items) => return items.get(index),
            Self::Made(items) => items.get(index),
        };
        item.cloned().ok_or_else(|| EvalError::new(format!("index out of bounds: {index}")))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = Result<Value<'a>>> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }
}

impl<'a> Map<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Data(entries) => entries.len(),
            Self::Made(entries) => entries.len(),
        }
    }

    pub(super) fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Data(entries) => entries.keys(),
            Self::Made(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    /// What stands under a key.
    pub(super) fn find(&self, key: &Value<'_>, meter: &mut Meter) -> Result<Option<Value<'a>>> {
        // Maps are searched from end to end: large ones cost more than the one unit of the API server.
        meter.charge(self.len() as u64 / 32)?;
        match (self, key) {
            (Self::Data(entries), Value::String(key)) => entries.find(key),
            (Self::Data(_), _) => Ok(None),
            (Self::Made(entries), key) => {
                let same = |(candidate, _): &&(Value<'a>, Value<'a>)| scalars_equal(candidate, key);
                Ok(entries.iter().find(same).map(|(_, value)| value.clone()))
            }
        }
    }
}

/// Whether two keys of a map are the same.
pub(super) fn scalars_equal(a: &Value<'_>, b: &Value<'_>) -> bool {
    a.compare(b) == Ok(Some(Ordering::Equal))
}
