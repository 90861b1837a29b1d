//! How the types of this crate are declared.
//!
//! Two rules hold for all of them. A value of an enum that nobody here knows is kept as its text instead of making the
//! object unreadable. A field that is absent has its default, and a field at its default is not written, unless the
//! default is something else than empty: then it is always written, so that reading it back cannot change it.

/// Declares an enum of known texts with one more variant, `Other`, for all others.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        $name:ident {
            $(#[$first_meta:meta])* $first:ident = $first_text:literal
            $(, $(#[$variant_meta:meta])* $variant:ident = $text:literal)* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[$first_meta])*
            #[default]
            $first,
            $($(#[$variant_meta])* $variant,)*
            /// A value that this version does not know.
            Other(Box<str>),
        }

        impl $name {
            /// The value as objects write it.
            pub fn as_str(&self) -> &str {
                match self {
                    Self::$first => $first_text,
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $first_text => Self::$first,
                    $($text => Self::$variant,)*
                    other => Self::Other(other.into()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::field::read_text(deserializer, |text| Ok(Self::from(text)))
            }
        }
    };
}

/// Declares structs of camelCase fields, all of them optional. `field: Type = value` gives a field a default.
macro_rules! object {
    ($($(#[$meta:meta])* $name:ident { $($fields:tt)* })+) => {
        $($crate::macros::object!(@field [$(#[$meta])* $name] {} {} $($fields)*);)+
    };
    (@field $head:tt { $($done:tt)* } { $($defaults:tt)* }
        $(#[$meta:meta])* $field:ident: $type:ty = $default:expr, $($rest:tt)*) => {
        $crate::macros::object!(@field $head
            { $($done)* $(#[$meta])* pub $field: $type, }
            { $($defaults)* $field: $default, }
            $($rest)*);
    };
    (@field $head:tt { $($done:tt)* } { $($defaults:tt)* }
        $(#[$meta:meta])* $field:ident: $type:ty, $($rest:tt)*) => {
        $crate::macros::object!(@field $head
            { $($done)* $(#[$meta])* #[serde(skip_serializing_if = "crate::field::is_default")] pub $field: $type, }
            { $($defaults)* $field: Default::default(), }
            $($rest)*);
    };
    (@field [$(#[$meta:meta])* $name:ident] { $($done:tt)* } { $($defaults:tt)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name { $($done)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($defaults)* }
            }
        }
    };
}

pub(crate) use {object, open_enum};

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macros declare types for others, the tests for themselves")]
mod tests {
    open_enum! {
        /// A colour.
        Colour {
            /// Red.
            Red = "red",
            /// Green.
            Green = "green",
        }
    }

    object! {
        /// A thing.
        Thing {
            /// How many.
            weight: i32 = 1,
            /// What it is called.
            given_name: Box<str>,
        }
    }

    #[test]
    fn absent_field_has_its_default_and_an_empty_one_is_not_written() {
        let thing: Thing = serde_json::from_str("{}").unwrap();
        assert_eq!(thing, Thing { weight: 1, given_name: "".into() });
        assert_eq!(serde_json::to_string(&thing).unwrap(), r#"{"weight":1}"#);
        let zero: Thing = serde_json::from_str(r#"{"weight":0,"givenName":"a"}"#).unwrap();
        assert_eq!(serde_json::to_string(&zero).unwrap(), r#"{"weight":0,"givenName":"a"}"#);
    }

    #[test]
    fn unknown_value_keeps_its_text() {
        let read = |json: &str| serde_json::from_str::<Colour>(json).unwrap();
        assert_eq!(read("\"green\""), Colour::Green);
        assert_eq!(read("\"mauve\""), Colour::Other("mauve".into()));
        assert_eq!(serde_json::to_string(&read("\"mauve\"")).unwrap(), "\"mauve\"");
        assert_eq!(Colour::default().as_str(), "red");
    }
}
