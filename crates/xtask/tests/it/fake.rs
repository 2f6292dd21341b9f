//! A project of two rooms in a temporary folder that keeps every rule of tidy.
//!
//! It is as small as the rules allow: one pure room with two error codes, one edge room, one test that carries a
//! contract. The folder goes away with the value.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

const FILES: [(&str, &str); 11] = [
    ("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n"),
    (
        "ARCHITECTURE.md",
        "# Architecture\n\n\
         | room | kind | may use |\n|---|---|---|\n| `domain` | pure | – |\n| `store` | edge | `domain` |\n",
    ),
    ("crates/domain/Cargo.toml", "[package]\nname = \"domain\"\nversion = \"0.0.0\"\nedition = \"2024\"\n"),
    ("crates/domain/src/lib.rs", "//! Words.\n//!\n//! Owns: the words.\n//! Must not know: the world.\n"),
    (
        "crates/domain/src/code.rs",
        "//! Codes.\n\ncodes! {\n    OutOfScope = \"out_of_scope\", 403;\n    \
         VersionConflict = \"VERSION_CONFLICT\", 409;\n}\n",
    ),
    (
        "crates/store/Cargo.toml",
        "[package]\nname = \"store\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [dependencies]\ndomain = { path = \"../domain\" }\n",
    ),
    ("crates/store/src/lib.rs", "//! Shelves.\n//!\n//! Owns: the shelves.\n//! Must not know: what is on them.\n"),
    ("tests/main.rs", "//! Outside.\n\n#[test]\nfn k13_holds() {}\n"),
    (
        "docs/contracts.md",
        "# Contracts\n\n| id | what of it holds | where it is proven |\n|---|---|---|\n| K13 | whole | tests/main.rs |\n",
    ),
    ("docs/errors/out_of_scope.md", "# out_of_scope\n\nText.\n"),
    ("docs/errors/VERSION_CONFLICT.md", "# VERSION_CONFLICT\n\nText.\n"),
];

pub(crate) struct Fake {
    root: TempDir,
}

/// All that a run of xtask leaves behind.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Fake {
    pub(crate) fn new() -> Self {
        let root = TempDir::new().expect("a temporary folder can be made");
        let fake = Self { root };
        for (path, text) in FILES {
            fake.write(path, text);
        }
        fake.tidy_with(&["--fix"]).expect(0, "");
        fake
    }

    pub(crate) fn tidy(&self) -> Outcome {
        self.tidy_with(&[])
    }

    pub(crate) fn tidy_with(&self, options: &[&str]) -> Outcome {
        let root = self.root.path().to_str().expect("the folder's name is text");
        let mut args = vec!["tidy", "--root", root];
        args.extend(options);
        self.xtask(&args)
    }

    pub(crate) fn xtask(&self, args: &[&str]) -> Outcome {
        let output =
            Command::new(env!("CARGO_BIN_EXE_xtask")).args(args).current_dir(self.root.path()).output().expect("xtask starts");
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("stdout is text"),
            stderr: String::from_utf8(output.stderr).expect("stderr is text"),
        }
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).expect("the file can be read")
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        let folder = path.parent().expect("a file is in a folder");
        fs::create_dir_all(folder).expect("the folder can be made");
        fs::write(path, text).expect("the file can be written");
    }

    pub(crate) fn append(&self, path: &str, text: &str) {
        self.write(path, &(self.read(path) + text));
    }

    pub(crate) fn replace(&self, path: &str, old: &str, new: &str) {
        let text = self.read(path);
        assert!(text.contains(old), "`{path}` does not hold `{old}`");
        self.write(path, &text.replace(old, new));
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).expect("the file can be removed");
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }
}

impl Outcome {
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, stdout: &str) {
        let told = (self.code, self.stdout.as_str());
        assert_eq!(told, (Some(code), stdout), "stderr: {}", self.stderr);
    }
}
