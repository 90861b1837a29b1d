//! The files that a command reads.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum size of a file, because its content is held in memory several times.
const MAX_BYTES: u64 = 1 << 30;

/// The maximum depth of directories, which also ends cycles of symbolic links.
const MAX_DEPTH: usize = 64;

const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// A file to read, or why it cannot be read.
#[derive(Debug)]
pub(crate) enum Input {
    /// Standard input.
    Stdin,
    /// A file and its size.
    File(PathBuf, u64),
    /// A path that cannot be accessed.
    Missing(PathBuf, io::Error),
}

impl Input {
    /// The name for messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Stdin => "-".to_owned(),
            Self::File(path, _) | Self::Missing(path, _) => path.display().to_string(),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::File(_, size) => *size,
            Self::Stdin | Self::Missing(..) => 0,
        }
    }

    /// Reads the content. The error is worded like istioctl's.
    pub(crate) fn read(&self) -> Result<Vec<u8>, String> {
        let name = self.name();
        let read = match self {
            Self::Stdin => bounded(io::stdin().lock()),
            Self::File(path, _) => fs::File::open(path).and_then(bounded),
            Self::Missing(_, error) => {
                return Err(format!("cannot stat file {name:?}: stat {name}: {}", reason(error)));
            }
        };
        read.map_err(|error| format!("cannot read file {name:?}: {}", reason(&error)))
    }
}

/// A flag's duration, such as `90s` or `1m30s`.
pub(crate) fn go_duration(text: &str) -> Result<Duration, String> {
    // Parity: the message is that of Go's flag library.
    let invalid = || format!("time: invalid duration {text:?}");
    let duration: canopus_base::duration::Duration = text.parse().map_err(|_| invalid())?;
    duration.to_std().ok_or_else(|| "a timeout is not negative".to_owned())
}

/// The message of the operating system without the number that Rust adds.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

fn bounded(reader: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("larger than 1 GiB"));
    }
    Ok(bytes)
}

/// Finds the files of all paths. Files of a directory are sorted by name, and only YAML and JSON files are taken from it; a
/// named file is always taken.
pub(crate) fn find(names: &[String]) -> Vec<Input> {
    find_where(names, is_document)
}

/// Finds the files of all paths, of directories those of any name.
pub(crate) fn find_all(names: &[String]) -> Vec<Input> {
    find_where(names, |_| true)
}

fn find_where(names: &[String], counts: fn(&Path) -> bool) -> Vec<Input> {
    let mut inputs = Vec::new();
    for name in names {
        if name == "-" {
            inputs.push(Input::Stdin);
        } else {
            add(Path::new(name), 0, counts, &mut inputs);
        }
    }
    inputs
}

fn add(path: &Path, depth: usize, counts: fn(&Path) -> bool, inputs: &mut Vec<Input>) {
    match fs::metadata(path) {
        Err(error) => inputs.push(Input::Missing(path.to_owned(), error)),
        Ok(data) if !data.is_dir() => inputs.push(Input::File(path.to_owned(), data.len())),
        Ok(_) if depth > MAX_DEPTH => {
            inputs.push(Input::Missing(path.to_owned(), io::Error::other("directories nest too deeply")));
        }
        Ok(_) => match fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Err(error) => inputs.push(Input::Missing(path.to_owned(), error)),
            Ok(mut entries) => {
                entries.sort_by_key(fs::DirEntry::file_name);
                let paths = entries.iter().map(fs::DirEntry::path);
                for path in paths.filter(|path| path.is_dir() || counts(path)) {
                    add(&path, depth + 1, counts, inputs);
                }
            }
        },
    }
}

/// Whether a file is YAML or JSON by its name.
pub(crate) fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}
