//! The project as tidy sees it: its crates, as cargo reports them, and the text of its sources.
//!
//! Everything is read once, before the first rule. Paths inside the project are kept as text relative to the
//! root with `/` between the parts, because that is how they are compared and printed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folders whose `.rs` files are ours; each of them may be absent.
const SOURCE_FOLDERS: [&str; 3] = ["crates", "tests", "fuzz"];

#[derive(Debug)]
pub(crate) struct Project {
    root: PathBuf,
    /// The workspace's crates in the order of their names.
    pub(crate) crates: Vec<Crate>,
    /// Every `.rs` file of the project in the order of their paths.
    pub(crate) sources: Vec<Source>,
}

#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Where it lives, relative to the root.
    pub(crate) folder: String,
    /// The workspace's crates that it depends on outside of its tests.
    pub(crate) uses: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Why the project cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot run `cargo metadata` in `{}`: {source}", root.display())]
    CargoStart { root: PathBuf, source: io::Error },
    #[error("`cargo metadata` failed in `{}`: {stderr}", root.display())]
    CargoFailed { root: PathBuf, stderr: String },
    #[error("`cargo metadata` did not answer with JSON: {0}")]
    CargoAnswer(#[from] serde_json::Error),
    #[error("the answer of `cargo metadata` has no usable `{0}`")]
    CargoField(&'static str),
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl Project {
    /// Reads the project whose workspace holds the directory `start`.
    pub(crate) fn load(start: &Path) -> Result<Self, Error> {
        let metadata = cargo_metadata(start)?;
        let root = PathBuf::from(text_field(&metadata, "workspace_root")?);
        let crates = crates(&metadata, &root)?;
        let mut paths = Vec::new();
        for folder in SOURCE_FOLDERS {
            collect_sources(&root, folder, &mut paths)?;
        }
        paths.sort();
        let sources = paths
            .into_iter()
            .map(|path| {
                let text = read(&root.join(&path))?;
                Ok(Source { path, text })
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self { root, crates, sources })
    }

    /// The text of a file that may be absent.
    pub(crate) fn read_if_present(&self, path: &str) -> Result<Option<String>, Error> {
        match read(&self.root.join(path)) {
            Ok(text) => Ok(Some(text)),
            Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names of the files directly in a folder, sorted; none if the folder is absent.
    pub(crate) fn file_names(&self, folder: &str) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for entry in entries(&self.root.join(folder))? {
            if entry.is_file {
                names.push(entry.name);
            }
        }
        names.sort();
        Ok(names)
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), Error> {
        let path = self.root.join(path);
        fs::write(&path, text).map_err(|source| Error::Write { path, source })
    }
}

fn cargo_metadata(start: &Path) -> Result<Value, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(start)
        .output()
        .map_err(|source| Error::CargoStart { root: start.to_owned(), source })?;
    if !output.status.success() {
        return Err(Error::CargoFailed {
            root: start.to_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn crates(metadata: &Value, root: &Path) -> Result<Vec<Crate>, Error> {
    // With `--no-deps` the packages of the answer are exactly the members of the workspace.
    let packages = list_field(metadata, "packages")?;
    let names = packages.iter().map(|package| text_field(package, "name")).collect::<Result<BTreeSet<_>, _>>()?;
    let mut crates = Vec::new();
    for package in packages {
        let manifest = Path::new(text_field(package, "manifest_path")?);
        let folder =
            manifest.parent().and_then(|folder| folder.strip_prefix(root).ok()).ok_or(Error::CargoField("manifest_path"))?;
        let mut uses = BTreeSet::new();
        for dependency in list_field(package, "dependencies")? {
            let name = text_field(dependency, "name")?;
            let for_tests = dependency.get("kind").and_then(Value::as_str) == Some("dev");
            let ours = names.contains(name) && dependency.get("path").is_some_and(Value::is_string);
            if ours && !for_tests {
                uses.insert(name.to_owned());
            }
        }
        crates.push(Crate {
            name: text_field(package, "name")?.to_owned(),
            folder: folder.to_string_lossy().replace('\\', "/"),
            uses,
        });
    }
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(crates)
}

fn text_field<'a>(value: &'a Value, name: &'static str) -> Result<&'a str, Error> {
    let text = value.get(name).and_then(Value::as_str);
    text.ok_or(Error::CargoField(name))
}

fn list_field<'a>(value: &'a Value, name: &'static str) -> Result<&'a [Value], Error> {
    let list = value.get(name).and_then(Value::as_array);
    list.map(Vec::as_slice).ok_or(Error::CargoField(name))
}

fn collect_sources(root: &Path, folder: &str, paths: &mut Vec<String>) -> Result<(), Error> {
    for entry in entries(&root.join(folder))? {
        let path = format!("{folder}/{}", entry.name);
        if entry.is_folder && entry.name != "target" && !entry.name.starts_with('.') {
            collect_sources(root, &path, paths)?;
        } else if entry.is_file && path.ends_with(".rs") {
            paths.push(path);
        }
    }
    Ok(())
}

struct Entry {
    name: String,
    is_file: bool,
    is_folder: bool,
}

/// What is in a folder, nothing if it is absent. Links are neither file nor folder, so no walk can run in circles.
fn entries(folder: &Path) -> Result<Vec<Entry>, Error> {
    let failed = |source| Error::Read { path: folder.to_owned(), source };
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut entries = Vec::new();
    for entry in listing {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        entries.push(Entry {
            name: entry.file_name().to_string_lossy().into_owned(),
            is_file: kind.is_file(),
            is_folder: kind.is_dir(),
        });
    }
    Ok(entries)
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}
