//! Format strings.

use super::verb::{Flags, Printed, Printer};
use crate::limits::{Budget, LimitError};
use crate::value::{Value, runes};

/// Widths and precisions beyond this are not believed.
const MAX_NUMBER: i64 = 1_000_000;

/// `fmt.Sprintf`.
pub(crate) fn sprintf(budget: &Budget, format: &[u8], args: &[Value]) -> Result<Vec<u8>, LimitError> {
    let mut reader = Reader {
        printer: Printer::new(budget),
        rest: format,
        args,
        next: 0,
        reordered: false,
        good_index: true,
    };
    reader.run()?;
    Ok(reader.printer.finish())
}

struct Reader<'a> {
    printer: Printer<'a>,
    rest: &'a [u8],
    args: &'a [Value],
    /// Which argument is next.
    next: usize,
    /// Whether an explicit index was used anywhere.
    reordered: bool,
    /// Whether the indexes of the present directive make sense.
    good_index: bool,
}

impl Reader<'_> {
    fn run(&mut self) -> Printed {
        while let Some(at) = self.rest.iter().position(|byte| *byte == b'%') {
            self.printer.write(&self.rest[..at])?;
            self.rest = &self.rest[at + 1..];
            self.directive()?;
        }
        self.printer.write(self.rest)?;
        if !self.reordered && self.next < self.args.len() { self.extra() } else { Ok(()) }
    }

    fn directive(&mut self) -> Printed {
        self.good_index = true;
        let mut flags = self.flags();
        let mut after_index = self.index();
        if self.take(b'*') {
            self.width_argument(&mut flags)?;
            after_index = false;
        } else {
            flags.width = self.number();
            self.good_index &= !(after_index && flags.width.is_some());
        }
        if self.take(b'.') {
            self.good_index &= !after_index;
            after_index = self.index();
            if self.take(b'*') {
                self.precision_argument(&mut flags)?;
                after_index = false;
            } else {
                flags.precision = Some(self.number().unwrap_or(0));
            }
        }
        if !after_index {
            self.index();
        }
        let Some((verb, raw)) = runes(self.rest).next() else {
            return self.printer.write(b"%!(NOVERB)");
        };
        self.rest = &self.rest[raw.len()..];
        self.verb(verb, flags)
    }

    fn verb(&mut self, verb: char, mut flags: Flags) -> Printed {
        if verb == '%' {
            return self.printer.write(b"%");
        }
        if !self.good_index {
            return self.printer.write(format!("%!{verb}(BADINDEX)").as_bytes());
        }
        let Some(arg) = self.args.get(self.next) else {
            return self.printer.write(format!("%!{verb}(MISSING)").as_bytes());
        };
        self.next += 1;
        if verb == 'w' {
            return self.printer.bad_verb(arg, verb, &flags);
        }
        if verb == 'v' {
            flags.go_syntax = std::mem::take(&mut flags.sharp);
            flags.plus = false;
        }
        self.printer.value(arg, verb, &flags)
    }

    fn extra(&mut self) -> Printed {
        self.printer.write(b"%!(EXTRA ")?;
        for (at, arg) in self.args[self.next..].iter().enumerate() {
            if at > 0 {
                self.printer.write(b", ")?;
            }
            if !arg.is_nil() {
                self.printer.write(format!("{}=", arg.type_name()).as_bytes())?;
            }
            self.printer.value(arg, 'v', &Flags::default())?;
        }
        self.printer.write(b")")
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.rest.first() == Some(&byte);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn flags(&mut self) -> Flags {
        let mut flags = Flags::default();
        while let Some(byte) = self.rest.first() {
            match byte {
                b'#' => flags.sharp = true,
                b'0' => flags.zero = true,
                b'+' => flags.plus = true,
                b'-' => flags.minus = true,
                b' ' => flags.space = true,
                _ => break,
            }
            self.rest = &self.rest[1..];
        }
        flags
    }

    /// A decimal number. One that is too large ends the format string.
    fn number(&mut self) -> Option<usize> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (text, rest) = self.rest.split_at(digits);
        let number = decimal(text)?;
        let believable = i64::try_from(number).is_ok_and(|number| number <= MAX_NUMBER);
        self.rest = if believable { rest } else { &[] };
        believable.then_some(number)
    }

    /// `[n]`: makes the n-th argument the next. Tells whether there was one.
    fn index(&mut self) -> bool {
        if self.rest.first() != Some(&b'[') {
            return false;
        }
        self.reordered = true;
        let closing = self.rest.iter().position(|byte| *byte == b']').filter(|_| self.rest.len() >= 3);
        let Some(closing) = closing else {
            self.good_index = false;
            self.rest = &self.rest[1..];
            return false;
        };
        let index = decimal(&self.rest[1..closing]);
        self.rest = &self.rest[closing + 1..];
        match index.and_then(|index| index.checked_sub(1)) {
            Some(index) if index < self.args.len() => self.next = index,
            _ => self.good_index = false,
        }
        index.is_some()
    }

    /// The integer of a `*`.
    fn integer_argument(&mut self) -> Option<i64> {
        let arg = self.args.get(self.next)?;
        self.next += 1;
        let int = match arg {
            Value::Int(int, _) => *int,
            Value::Uint(int, _) => i64::try_from(*int).ok()?,
            _ => return None,
        };
        (-MAX_NUMBER..=MAX_NUMBER).contains(&int).then_some(int)
    }

    fn width_argument(&mut self, flags: &mut Flags) -> Printed {
        let Some(width) = self.integer_argument() else { return self.printer.write(b"%!(BADWIDTH)") };
        flags.width = usize::try_from(width.unsigned_abs()).ok();
        if width < 0 {
            flags.minus = true;
            flags.zero = false;
        }
        Ok(())
    }

    fn precision_argument(&mut self, flags: &mut Flags) -> Printed {
        flags.precision = self.integer_argument().and_then(|precision| usize::try_from(precision).ok());
        if flags.precision.is_none() { self.printer.write(b"%!(BADPREC)") } else { Ok(()) }
    }
}

fn decimal(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        digits
            .iter()
            .fold(0usize, |sum, digit| sum.saturating_mul(10).saturating_add(usize::from(digit - b'0'))),
    )
}
