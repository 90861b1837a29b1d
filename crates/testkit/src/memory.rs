//! Looking for a private key in the memory of a process.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufRead as _;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Result};

use crate::KeyTraces;

/// How much is read at a time.
const PIECE: usize = 4 << 20;

/// In which form memory has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyForm {
    /// As a file or a Secret has it: base64, or hexadecimal.
    Text,
    /// As DER has it.
    Encoded,
    /// As a library calculates with it: numbers with the least byte first.
    Number,
}

impl KeyTraces {
    /// The forms in which the memory of a process has the key. It goes on meanwhile; what it gives back to the kernel is not seen.
    pub fn in_memory_of(&self, process: u32) -> Result<BTreeSet<KeyForm>> {
        let number: Vec<u8> = self.secret.iter().rev().copied().collect();
        let mut needles = vec![(KeyForm::Encoded, self.secret.as_slice()), (KeyForm::Number, &number)];
        needles.extend(self.forms.iter().map(|form| (KeyForm::Text, form.as_bytes())));
        let longest = needles.iter().map(|(_, needle)| needle.len()).max().unwrap_or_default();

        let memory = File::open(format!("/proc/{process}/mem")).context("the memory of the process")?;
        let mut found = BTreeSet::new();
        for (start, end) in writable(process)? {
            let mut at = start;
            while at < end {
                let size = PIECE.min(usize::try_from(end - at)?);
                let mut piece = vec![0; size];
                // Regions come and go while the process runs.
                let read = memory.read_at(&mut piece, at).unwrap_or_default();
                let has = |needle: &[u8]| contains(&piece[..read], needle);
                found.extend(needles.iter().filter(|(_, needle)| has(needle)).map(|(form, _)| *form));
                // A key may lie across two pieces.
                let step = if size < PIECE { size } else { size - longest };
                at += u64::try_from(step)?;
            }
        }
        Ok(found)
    }
}

/// Where a process has memory that it can write to.
fn writable(process: u32) -> Result<Vec<(u64, u64)>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).context("the regions of the process")?;
    let region = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let parse = |text| u64::from_str_radix(text, 16).ok();
        rest.starts_with("rw").then_some((parse(start)?, parse(end)?))
    };
    Ok(maps.lines().filter_map(region).collect())
}

/// Whether bytes have others among them.
fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    let Some((first, rest)) = needle.split_first() else { return false };
    let mut left = bytes;
    // The standard library passes over what is none of it much faster than a loop of an unoptimised test.
    while left.skip_until(*first).is_ok_and(|skipped| skipped > 0) {
        let is_begun = bytes[bytes.len() - left.len() - 1] == *first;
        if is_begun && left.starts_with(rest) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_found_in_the_form_that_memory_has_it_in() {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let traces = KeyTraces::from_pem("the key", &pem).unwrap();
        // Whoever looks has the key in all forms; a process that never had it has it in none.
        assert!(traces.in_memory_of(std::process::id()).unwrap().contains(&KeyForm::Text));
        let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = traces.in_memory_of(stranger.id());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert_eq!(found.unwrap(), BTreeSet::new());
    }
}
