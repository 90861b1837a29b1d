//! Protobuf's wire format is known in one place.
//!
//! Field numbers need no check: `canopus_proto::wire` takes its own constants and no numbers. What could come back is a second
//! codec, so the marks of one are looked for: varints by name, and tags put together or taken apart by shifting.

use super::Violation;
use super::tree::{TextFile, Tree};

/// What code that encodes or decodes fields by itself looks like.
const MARKS: [&str; 6] =
    ["varint", "<< 3 |", "encode_key", "encode_raw", "encode_length_delimited", "prost::encoding"];

/// The codec, and this file, which has to spell the marks out.
const EXEMPT: [&str; 2] = ["crates/proto/", "xtask/src/tidy/wire.rs"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let bound = |file: &&TextFile| {
        file.path.ends_with(".rs")
            && file.path.contains("/src/")
            && !EXEMPT.iter().any(|exempt| file.path.starts_with(exempt))
    };
    tree.files.iter().filter(bound).flat_map(check_file).collect()
}

fn check_file(file: &TextFile) -> impl Iterator<Item = Violation> {
    let mark = |line: &str| {
        let line = line.split("//").next().unwrap_or_default().to_ascii_lowercase();
        MARKS.into_iter().find(|mark| line.contains(mark))
    };
    let found = file.numbered_lines().filter_map(move |(number, line)| Some((number, mark(line)?)));
    found.map(|(number, mark)| Violation {
        file: file.path.clone(),
        line: Some(number),
        found: format!("`{mark}`"),
        law: "protobuf's wire format is known only to `proto::wire`",
        remedy: "write with `ProtoWriter` or `Tag`, read with `next_field`, and add the message to `build/fields.rs`"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<Option<usize>> {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        let violations = check(&Tree { crates: Vec::new(), files: vec![file] });
        violations.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn second_codec_is_found() {
        assert_eq!(found("crates/x/src/a.rs", "\nfn put_varint() {}\n"), [Some(2)]);
        assert_eq!(found("bench/src/a.rs", "out.push(field << 3 | 2);"), [Some(1)]);
        assert_eq!(found("crates/x/src/a.rs", "message.encode_raw(&mut out);"), [Some(1)]);
    }

    #[test]
    fn codec_itself_comments_and_tests_are_exempt() {
        assert!(found("crates/proto/src/wire/read.rs", "fn read_varint() {}").is_empty());
        assert!(found("crates/x/src/a.rs", "// A varint has seven bits to a byte.").is_empty());
        assert!(found("crates/x/tests/a.rs", "fn varint() {}").is_empty());
    }
}
