//! Small values that many kinds share.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use canopus_base::labels::selector::SelectorError;
use canopus_base::labels::{Labels, Selector};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::field::read_text;
use crate::macros::{object, open_enum};

/// Points in time as objects write them: RFC 3339.
pub(crate) mod time {
    use super::{Deserializer, Serializer, Timestamp, read_text};

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(time),
            None => serializer.serialize_none(),
        }
    }

    /// Parity: the empty text and `null` are "no time", as Go reads them.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        read_text(deserializer, |text| match text {
            "" => Ok(None),
            text => match text.parse() {
                Ok(time) => Ok(Some(time)),
                Err(_) => Err(format!("{text:?} is not a time such as 2026-01-31T12:00:00Z")),
            },
        })
    }
}

/// Bytes that documents write in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Base64(pub Bytes);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_text(deserializer, |text| match STANDARD.decode(text) {
            Ok(bytes) => Ok(Self(bytes.into())),
            Err(_) => Err("is not base64".to_owned()),
        })
    }
}

/// A number or a name, as a target port may be either.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A name, or a percentage.
    String(Box<str>),
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(int) => int.fmt(f),
            Self::String(text) => f.write_str(text),
        }
    }
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(int) => serializer.serialize_i32(*int),
            Self::String(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = IntOrString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer or a string")
            }

            fn visit_i64<E: de::Error>(self, int: i64) -> Result<IntOrString, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Signed(int), &"an integer of 32 bits");
                i32::try_from(int).map(IntOrString::Int).map_err(wrong)
            }

            fn visit_u64<E: de::Error>(self, int: u64) -> Result<IntOrString, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(int), &"an integer of 32 bits");
                i32::try_from(int).map(IntOrString::Int).map_err(wrong)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<IntOrString, E> {
                Ok(IntOrString::String(text.into()))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

object! {
    /// A label selector as objects write it. Without any requirement it selects everything.
    #[derive(Hash)]
    LabelSelector {
        /// Labels that must have these values.
        match_labels: Labels,
        /// Further conditions; all must hold.
        match_expressions: Vec<LabelExpression>,
    }

    /// One condition of a [`LabelSelector`].
    #[derive(Hash)]
    LabelExpression {
        /// The label.
        key: Box<str>,
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        operator: Box<str>,
        /// The values of `In` and `NotIn`.
        values: Vec<Box<str>>,
    }
}

impl LabelSelector {
    /// The selector ready to match, or what is wrong with it.
    pub fn compile(&self) -> Result<Selector, SelectorError> {
        let expressions = self
            .match_expressions
            .iter()
            .map(|e| (&*e.key, &*e.operator, e.values.iter().map(|value| &**value).collect()));
        Selector::from_parts(self.match_labels.iter(), expressions)
    }
}

open_enum! {
    /// Whether a condition holds.
    ConditionStatus {
        /// The state is not known yet.
        Unknown = "Unknown",
        /// The condition holds.
        True = "True",
        /// The condition does not hold.
        False = "False",
    }
}

object! {
    /// One observation about an object, in its status.
    Condition {
        /// What is observed: `Accepted`, `Ready`.
        r#type: Box<str>,
        /// Whether it holds.
        status: ConditionStatus = ConditionStatus::Unknown,
        /// The generation of the object that was looked at.
        observed_generation: i64,
        /// When the status last changed.
        #[serde(with = "time")]
        last_transition_time: Option<Timestamp>,
        /// The reason as one word.
        reason: Box<str>,
        /// The reason for people.
        message: Box<str>,
    }
}
