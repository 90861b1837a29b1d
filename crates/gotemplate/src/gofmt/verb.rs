//! Formats one value under one verb.

use super::{float, quote};
use crate::limits::{Budget, LimitError, MAX_VALUE_DEPTH};
use crate::value::{Str, Value, runes};

/// The flags between `%` and the verb.
#[derive(Clone, Debug, Default)]
pub(super) struct Flags {
    pub(super) plus: bool,
    pub(super) minus: bool,
    pub(super) sharp: bool,
    pub(super) space: bool,
    pub(super) zero: bool,
    /// `%#v`: Go syntax.
    pub(super) go_syntax: bool,
    pub(super) width: Option<usize>,
    pub(super) precision: Option<usize>,
}

pub(super) type Printed = Result<(), LimitError>;

/// Collects formatted text and charges for it.
pub(super) struct Printer<'a> {
    out: Vec<u8>,
    budget: &'a Budget,
    depth: u32,
}

impl<'a> Printer<'a> {
    pub(super) fn new(budget: &'a Budget) -> Self {
        Self { out: Vec::new(), budget, depth: 0 }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Printed {
        self.budget.charge_bytes(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn value(&mut self, value: &Value, verb: char, flags: &Flags) -> Printed {
        if verb == 'T' {
            return self.string(value.type_name().as_bytes(), 's', flags, value);
        }
        match value {
            Value::Nil => self.nil(verb, flags),
            Value::Bool(truth) => self.bool(*truth, verb, flags),
            Value::Int(int, _) => self.integer(int.unsigned_abs(), *int < 0, true, verb, flags, value),
            Value::Uint(int, _) => self.integer(*int, false, false, verb, flags, value),
            Value::Float(float) => self.float(*float, verb, flags, value),
            Value::Complex(re, im) => self.complex(*re, *im, verb, flags, value),
            Value::String(text) => self.string(text.as_bytes(), verb, flags, value),
            Value::Bytes(bytes) => self.bytes(bytes, verb, flags),
            Value::List(list) => self.open(list.type_name(), "[", list.is_nil(), flags, |printer| {
                for (at, item) in list.items().iter().enumerate() {
                    printer.separator(at, flags)?;
                    printer.element(item, verb, flags)?;
                }
                Ok(())
            }),
            Value::Map(map) => self.open(map.type_name(), "map[", map.is_nil(), flags, |printer| {
                for (at, (key, item)) in map.entries().into_iter().enumerate() {
                    printer.separator(at, flags)?;
                    printer.value(&Value::String(key), verb, flags)?;
                    printer.write(b":")?;
                    printer.element(&item, verb, flags)?;
                }
                Ok(())
            }),
            Value::Object(object) => self.string(object.print().as_bytes(), verb, flags, value),
        }
    }

    /// An element of a list or map, where nil is `<nil>` whatever the verb.
    fn element(&mut self, value: &Value, verb: char, flags: &Flags) -> Printed {
        match value {
            Value::Nil if flags.go_syntax => self.write(b"interface {}(nil)"),
            Value::Nil => self.write(b"<nil>"),
            _ => self.value(value, verb, flags),
        }
    }

    fn separator(&mut self, at: usize, flags: &Flags) -> Printed {
        match (at, flags.go_syntax) {
            (0, _) => Ok(()),
            (_, true) => self.write(b", "),
            (_, false) => self.write(b" "),
        }
    }

    /// A list or map: brackets around what `fill` writes.
    fn open(
        &mut self,
        type_name: &str,
        opening: &str,
        is_nil: bool,
        flags: &Flags,
        fill: impl FnOnce(&mut Self) -> Printed,
    ) -> Printed {
        self.depth += 1;
        if self.depth > MAX_VALUE_DEPTH {
            return Err(LimitError::ValueDepth);
        }
        if flags.go_syntax && is_nil {
            self.write(format!("{type_name}(nil)").as_bytes())?;
        } else {
            let (opening, closing) =
                if flags.go_syntax { (format!("{type_name}{{"), "}") } else { (opening.to_owned(), "]") };
            self.write(opening.as_bytes())?;
            fill(self)?;
            self.write(closing.as_bytes())?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// `%!verb(type=value)`.
    pub(super) fn bad_verb(&mut self, value: &Value, verb: char, flags: &Flags) -> Printed {
        self.write(format!("%!{verb}({}", value.type_name()).as_bytes())?;
        if !value.is_nil() {
            self.write(b"=")?;
            self.value(value, 'v', flags)?;
        }
        self.write(b")")
    }

    fn nil(&mut self, verb: char, flags: &Flags) -> Printed {
        match verb {
            'v' => self.pad(b"<nil>", flags),
            _ => self.bad_verb(&Value::Nil, verb, flags),
        }
    }

    fn bool(&mut self, truth: bool, verb: char, flags: &Flags) -> Printed {
        match verb {
            't' | 'v' => self.pad(if truth { b"true" } else { b"false" }, flags),
            _ => self.bad_verb(&Value::Bool(truth), verb, flags),
        }
    }

    fn complex(&mut self, re: f64, im: f64, verb: char, flags: &Flags, value: &Value) -> Printed {
        if !matches!(verb, 'v' | 'b' | 'g' | 'G' | 'x' | 'X' | 'f' | 'F' | 'e' | 'E') {
            return self.bad_verb(value, verb, flags);
        }
        self.write(b"(")?;
        self.float(re, verb, flags, value)?;
        self.float(im, verb, &Flags { plus: true, ..flags.clone() }, value)?;
        self.write(b"i)")
    }

    fn string(&mut self, text: &[u8], verb: char, flags: &Flags, value: &Value) -> Printed {
        match verb {
            'v' if flags.go_syntax => self.quoted(text, flags),
            'v' | 's' => self.pad(truncated(text, flags.precision), flags),
            'q' => self.quoted(truncated(text, flags.precision), flags),
            'x' | 'X' => self.hex_bytes(text, verb, flags),
            _ => self.bad_verb(value, verb, flags),
        }
    }

    fn quoted(&mut self, text: &[u8], flags: &Flags) -> Printed {
        let quoted = if flags.sharp && quote::can_backquote(text) {
            format!("`{}`", String::from_utf8_lossy(text))
        } else if flags.plus {
            quote::quoted_ascii(text)
        } else {
            quote::quoted(text)
        };
        self.pad(quoted.as_bytes(), flags)
    }

    fn hex_bytes(&mut self, bytes: &[u8], verb: char, flags: &Flags) -> Printed {
        let bytes = &bytes[..bytes.len().min(flags.precision.unwrap_or(usize::MAX))];
        self.budget.charge_bytes(bytes.len() * 3)?;
        let mut text = String::new();
        for (at, byte) in bytes.iter().enumerate() {
            if flags.space && at > 0 {
                text.push(' ');
            }
            if flags.sharp && (at == 0 || flags.space) {
                text.push_str("0x");
            }
            text.push_str(&format!("{byte:02x}"));
        }
        if verb == 'X' {
            text.make_ascii_uppercase();
        }
        self.pad(text.as_bytes(), flags)
    }

    fn bytes(&mut self, bytes: &Str, verb: char, flags: &Flags) -> Printed {
        if matches!(verb, 's' | 'q' | 'x' | 'X') {
            return self.string(bytes.as_bytes(), verb, flags, &Value::Bytes(bytes.clone()));
        }
        let items =
            bytes.as_bytes().iter().map(|byte| Value::Uint((*byte).into(), crate::value::UintKind::Uint8));
        let items: Vec<Value> = items.collect();
        self.open("[]byte", "[", false, flags, |printer| {
            for (at, item) in items.iter().enumerate() {
                printer.separator(at, flags)?;
                printer.value(item, verb, flags)?;
            }
            Ok(())
        })
    }

    fn integer(
        &mut self,
        magnitude: u64,
        negative: bool,
        signed: bool,
        verb: char,
        flags: &Flags,
        value: &Value,
    ) -> Printed {
        let (mut digits, prefix) = match verb {
            'v' if flags.go_syntax && !signed => (format!("{magnitude:x}"), "0x"),
            'v' | 'd' => (magnitude.to_string(), ""),
            'b' => (format!("{magnitude:b}"), if flags.sharp { "0b" } else { "" }),
            'o' => (format!("{magnitude:o}"), if flags.sharp && magnitude != 0 { "0" } else { "" }),
            'O' => (format!("{magnitude:o}"), "0o"),
            'x' => (format!("{magnitude:x}"), if flags.sharp { "0x" } else { "" }),
            'X' => (format!("{magnitude:X}"), if flags.sharp { "0X" } else { "" }),
            'U' => return self.unicode(if negative { magnitude.wrapping_neg() } else { magnitude }, flags),
            'c' | 'q' => return self.rune(magnitude, negative, verb, flags),
            _ => return self.bad_verb(value, verb, flags),
        };
        let sign = sign(negative, flags);
        let unpadded = Flags { zero: false, ..flags.clone() };
        let zeros = match flags.precision {
            Some(0) if magnitude == 0 => return self.pad(b"", &unpadded),
            Some(precision) => precision,
            None if flags.zero && !flags.minus => {
                flags.width.map_or(0, |width| width.saturating_sub(sign.len()))
            }
            None => 0,
        };
        self.budget.charge_bytes(zeros)?;
        if zeros > digits.len() {
            digits.insert_str(0, &"0".repeat(zeros - digits.len()));
        }
        self.pad(format!("{sign}{prefix}{digits}").as_bytes(), &unpadded)
    }

    fn rune(&mut self, code: u64, negative: bool, verb: char, flags: &Flags) -> Printed {
        let code = if negative { None } else { u32::try_from(code).ok() };
        let c = code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
        let text = match verb {
            'c' => c.to_string(),
            _ => quote::quoted_rune(c, flags.plus),
        };
        self.pad(text.as_bytes(), &Flags { zero: false, ..flags.clone() })
    }

    fn unicode(&mut self, code: u64, flags: &Flags) -> Printed {
        let width = flags.precision.unwrap_or(4).max(4);
        self.budget.charge_bytes(width)?;
        let mut text = format!("U+{code:0width$X}");
        let c = u32::try_from(code).ok().and_then(char::from_u32).filter(|c| quote::is_printable(*c));
        if flags.sharp
            && let Some(c) = c
        {
            text.push_str(&format!(" '{c}'"));
        }
        self.pad(text.as_bytes(), &Flags { zero: false, ..flags.clone() })
    }

    fn float(&mut self, float: f64, verb: char, flags: &Flags, value: &Value) -> Printed {
        let (form, default) = match verb {
            'v' | 'g' | 'G' => (float::Form::General, None),
            'e' | 'E' => (float::Form::Exponent, Some(6)),
            'f' | 'F' => (float::Form::Fixed, Some(6)),
            'x' | 'X' => (float::Form::Hex, None),
            'b' => (float::Form::Binary, None),
            _ => return self.bad_verb(value, verb, flags),
        };
        let precision = flags.precision.or(default);
        self.budget.charge_bytes(precision.unwrap_or(0))?;
        let mut text = float::format(float, form, precision);
        match verb {
            'E' | 'G' => text = text.replace('e', "E"),
            'X' => text.make_ascii_uppercase(),
            _ => {}
        }
        let negative = text.starts_with('-');
        let unsigned = text.trim_start_matches(['-', '+']);
        let unpadded = Flags { zero: false, ..flags.clone() };
        if !float.is_finite() {
            let plain_nan = float.is_nan() && !flags.space && !flags.plus;
            let sign = match sign(negative, flags) {
                _ if plain_nan => "",
                "" => "+",
                sign => sign,
            };
            return self.pad(format!("{sign}{unsigned}").as_bytes(), &unpadded);
        }
        let number = if flags.sharp && verb != 'b' {
            with_point(unsigned, form, precision)
        } else {
            unsigned.to_owned()
        };
        let sign = sign(negative, flags);
        let width = flags.width.unwrap_or(0);
        if !sign.is_empty() && flags.zero && !flags.minus && width > sign.len() + number.len() {
            self.budget.charge_bytes(width)?;
            let zeros = "0".repeat(width - sign.len() - number.len());
            return self.write(format!("{sign}{zeros}{number}").as_bytes());
        }
        self.pad(format!("{sign}{number}").as_bytes(), flags)
    }

    /// Writes text, filled up to the width; the width counts characters.
    fn pad(&mut self, text: &[u8], flags: &Flags) -> Printed {
        let missing = flags.width.map_or(0, |width| width.saturating_sub(runes(text).count()));
        if missing == 0 {
            return self.write(text);
        }
        self.budget.charge_bytes(missing)?;
        let fill = if flags.zero && !flags.minus { b'0' } else { b' ' };
        let padding = vec![fill; missing];
        if flags.minus {
            self.write(text)?;
            self.write(&padding)
        } else {
            self.write(&padding)?;
            self.write(text)
        }
    }
}

fn sign(negative: bool, flags: &Flags) -> &'static str {
    match (negative, flags.plus, flags.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    }
}

/// The first characters of a text, as many as the precision says.
fn truncated(text: &[u8], precision: Option<usize>) -> &[u8] {
    let Some(precision) = precision else { return text };
    let end: usize = runes(text).take(precision).map(|(_, raw)| raw.len()).sum();
    &text[..end]
}

/// `%#g`: keeps the decimal point and, in general form, trailing zeros.
fn with_point(number: &str, form: float::Form, precision: Option<usize>) -> String {
    let exponent: &[char] = if form == float::Form::Hex { &['p', 'P'] } else { &['e', 'E'] };
    let (digits, tail) = match number.find(exponent) {
        Some(at) => number.split_at(at),
        None => (number, ""),
    };
    let mut missing = match form {
        // The `x` of the prefix counts as a digit.
        float::Form::Hex => precision.unwrap_or(6),
        float::Form::General => precision.unwrap_or(6),
        _ => 0,
    };
    let significant = digits.replace('.', "");
    let significant = significant.trim_start_matches('0').len();
    missing = missing.saturating_sub(significant);
    let mut text = digits.to_owned();
    if !digits.contains('.') {
        missing = missing.saturating_sub(usize::from(digits == "0"));
        text.push('.');
    }
    text.push_str(&"0".repeat(missing));
    text + tail
}
